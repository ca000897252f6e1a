"""Facts about the outside world as data files, each value with source, date and seen / estimate."""
