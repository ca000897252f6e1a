"""What is known about the outside world? Facts as data files, each value with source, date and seen / estimate."""
