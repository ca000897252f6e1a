"""What Slurm says of a job besides its holder, as one JSON object of texts: the rules of tagging read it."""

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.slurm.job_summaries import MARK

TAGS: Final = (
    "account", "admin_comment", "cluster", "comment", "job_name", "partition", "qos", "reservation", "wckey",
)  # fmt: skip
"""Keys of tags, sorted; each a column of JOBS."""
_SPECIAL: Final = r'["\\\x00-\x1f]'


def write_tags(jobs: pa.Table) -> pa.Array:
    """The tags of each job; null where it has none."""
    parts = []
    for name in TAGS:
        texts = jobs[name].combine_chunks()
        if name == "admin_comment":
            summary = pc.fill_null(pc.starts_with(texts, MARK), False)
            texts = pc.if_else(summary, pa.scalar(None, pa.string()), texts)
        if texts.null_count < len(texts):
            parts.append(pc.binary_join_element_wise(f'"{name}":', _quote(texts), ""))
    if not parts:
        return pa.nulls(jobs.num_rows, pa.string())
    members = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    objects = pc.binary_join_element_wise("{", members, "}", "")
    return pc.if_else(pc.equal(members, ""), pa.scalar(None, pa.string()), objects)


def _quote(texts: pa.Array) -> pa.Array:
    """Texts as JSON."""
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(t, ensure_ascii=False) for t in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))
