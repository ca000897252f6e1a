"""What was lost in a window, as levers read it: the waterfall by holder, idle and free stretches, failed runs, jobs by pool."""
