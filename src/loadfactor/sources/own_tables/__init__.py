"""Files in our own schema, Parquet or CSV: how anybody's data gets in. `loadfactor tables` prints the schema."""

from loadfactor.sources.base import Source
from loadfactor.sources.own_tables.table_files import find_tables, read_tables

SOURCE = Source("tables", find_tables, read_tables, uses=("timezone", "step", "job"))
