"""The store: a folder of immutable Parquet files under a manifest, queried with DuckDB in the process."""
