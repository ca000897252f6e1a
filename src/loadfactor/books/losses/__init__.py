"""Losses of a window, as levers read them: the waterfall by holder, idle and free intervals, failed runs, jobs by pool."""
