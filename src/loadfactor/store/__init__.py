"""The store: a folder of immutable Parquet files under a manifest, asked with DuckDB in the process."""
