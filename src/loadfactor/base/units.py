"""Conversion factors, and nothing else; names read `<SMALL>_PER_<BIG>`."""

from typing import Final

S_PER_MIN: Final = 60
S_PER_HOUR: Final = 3600
S_PER_DAY: Final = 86_400
S_PER_WEEK: Final = 7 * S_PER_DAY
H_PER_DAY: Final = 24
MIN_PER_HOUR: Final = 60
MIN_PER_DAY: Final = H_PER_DAY * MIN_PER_HOUR
D_PER_WEEK: Final = 7
H_PER_YEAR: Final = 8760  # 365 days, as the industry's price lists count
H_PER_MONTH: Final = H_PER_YEAR / 12

MS_PER_S: Final = 1000
MS_PER_MIN: Final = S_PER_MIN * MS_PER_S
MS_PER_HOUR: Final = S_PER_HOUR * MS_PER_S
MS_PER_DAY: Final = S_PER_DAY * MS_PER_S
US_PER_MS: Final = 1000
US_PER_S: Final = 1_000_000
NS_PER_US: Final = 1000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
PS_PER_NS: Final = 1000

BYTES_PER_KIB: Final = 2**10
BYTES_PER_KB: Final = 10**3
BYTES_PER_MB: Final = 10**6
BYTES_PER_MIB: Final = 2**20
BYTES_PER_GIB: Final = 2**30
BYTES_PER_GB: Final = 10**9
BITS_PER_BYTE: Final = 8

FLOPS_PER_TFLOPS: Final = 10**12
FLOPS_PER_PFLOPS: Final = 10**15
FLOPS_PER_EXAFLOP: Final = 10**18
TOKENS_PER_MTOK: Final = 10**6
PARAMETERS_PER_BILLION: Final = 10**9

MILLIGPUS_PER_GPU: Final = 1000

J_PER_MJ: Final = 1e-3  # millijoule, as NVML counts energy
J_PER_UJ: Final = 1e-6  # microjoule
W_PER_MW: Final = 1e-3  # milliwatt
J_PER_KWH: Final = 3_600_000
W_PER_KW: Final = 1000
HZ_PER_MHZ: Final = 10**6
PERCENT: Final = 100
ONES_PER_MILLION: Final = 10**6
