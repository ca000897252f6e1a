"""Decoder of RunPod's billing records: `GET /v1/billing/pods`, /endpoints, /networkvolumes, and `runpodctl billing`.

docs.runpod.io/api-reference/billing documents them. They do not say how long an interval is; that of the nearest two counts.
"""

from typing import ClassVar

import pyarrow as pa

from loadfactor.sources.billing.bill_batch import BillBatch
from loadfactor.sources.billing.bill_reader import make_source
from loadfactor.sources.billing.rented import RentedDecoder


class RunpodDecoder(RentedDecoder):
    """Records of billing, a pod (or GPU type, endpoint, volume) and interval each."""

    what = "a list of RunPod's billing records (`runpodctl billing pods --grouping podId`)"
    provider, amount, starts = "RunPod", "amount", "time"
    needs: tuple[tuple[str, ...], ...] = (("amount",), ("time",))
    texts: ClassVar = {
        "ResourceId": ("podId", "endpointId", "networkVolumeId"),
        "SkuMeter": ("gpuTypeId", "gpuId"),
        "ChargeDescription": ("gpuTypeId", "gpuId"),
    }

    def read_run_ms(self, batch: BillBatch) -> pa.Array:
        """As `RentedDecoder`."""
        return batch.exact("timeBilledMs")


SOURCE = make_source("runpod", RunpodDecoder)
