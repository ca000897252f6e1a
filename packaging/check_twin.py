"""Is a wheel that is built of a part of the package that part, file for file, of one version, and at no path of the whole's?

python check_twin.py PART_WHEEL WHOLE_WHEEL FOLDER, where FOLDER is the part inside the whole (loadfactor/agent).
"""

import sys
from pathlib import Path
from zipfile import ZipFile


def main() -> None:
    """Exit with one line where the wheels differ."""
    paths, inside = [Path(path) for path in sys.argv[1:3]], f"{sys.argv[3]}/"
    part, whole = (ZipFile(path) for path in paths)
    (name, version), (_, version_of_whole) = (path.name.split("-")[:2] for path in paths)
    if both := set(part.namelist()) & set(whole.namelist()):
        sys.exit(f"{name} and loadfactor install the same files: {sorted(both)[:3]}")
    packed = {file.partition("/")[2]: part.read(file) for file in part.namelist() if file.startswith(f"{name}/")}
    if packed != {file.removeprefix(inside): whole.read(file) for file in whole.namelist() if file.startswith(inside)}:
        sys.exit(f"{name} is not {inside} of loadfactor")
    if version != version_of_whole:
        sys.exit(f"{name} has version {version}, loadfactor {version_of_whole}")


if __name__ == "__main__":
    main()
