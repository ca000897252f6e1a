"""The instance type of a charge, from the texts in which bills hide it."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_AWS: Final = (
    r"(?:^|[^a-z0-9.-])(?P<type>(?:ml\.)?[a-z][a-z0-9-]*"
    r"\.(?:nano|micro|small|medium|large|[0-9]*xlarge|metal)(?:-[a-z0-9]+)?)(?:$|[^a-z0-9.-])"
)
_AZURE: Final = r'"ServiceType"\s*:\s*"(?P<type>(?:Standard|Basic)_[^"]+)"'
_GOOGLE: Final = r'"compute\.googleapis\.com/machine_spec"\s*:\s*"(?P<type>[^"]+)"'
_FOCUS: Final = r'"InstanceType"\s*:\s*"(?P<type>[^"]+)"'


def find_aws_type(*texts: pa.Array) -> pa.Array:
    """p4d.24xlarge out of USE1-BoxUsage:p4d.24xlarge or a description; the first text that has one.

    >>> find_aws_type(pa.array(["USE1-BoxUsage:p4d.24xlarge", "$0.04 per Linux t3.medium Hour", "0.5 GB"])).to_pylist()
    ['p4d.24xlarge', 't3.medium', None]
    """
    return pc.coalesce(*(_extract(text, _AWS) for text in texts))


def find_azure_type(additional_info: pa.Array) -> pa.Array:
    """Standard_ND96asr_v4 out of AdditionalInfo, with or without braces."""
    return _extract(additional_info, _AZURE)


def find_google_type(system_labels: pa.Array) -> pa.Array:
    """a2-highgpu-1g out of system labels as a JSON object."""
    return _extract(system_labels, _GOOGLE)


def find_focus_type(price_details: pa.Array) -> pa.Array:
    """The key InstanceType of SkuPriceDetails (FOCUS 1.1)."""
    return _extract(price_details, _FOCUS)


def _extract(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts, pattern), "type")
