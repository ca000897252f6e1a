"""Where are the books kept? A folder of immutable Parquet files under a manifest, questioned with DuckDB in the process."""
