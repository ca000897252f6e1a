"""What was lost in a window, as levers read it: the waterfall by holder, idle and free intervals, failed runs, jobs by pool."""
