"""How fast is it? Every speed claim of this project, as ratios within one run. `make bench` writes bench.json."""
