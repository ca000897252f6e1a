"""Fit of the factors of frameworks of reinforcement learning to published steps; prints catalog/constants/reinforcement.toml.

    python -m benchmarks.fit_reinforcement

The steps come with the program. A factor is the mean, over networks, of what makes their predicted steps the measured ones.
"""

from loadfactor.planner.validation.reinforcement import fit_factors


def main() -> None:
    for kind, (value, (low, high), error) in fit_factors().items():
        print(f"\n[{kind}]\nvalue = {value:.9g}\nrange = [{low:.4g}, {high:.4g}]\nleft_out_error = {error:.4g}")


if __name__ == "__main__":
    main()
