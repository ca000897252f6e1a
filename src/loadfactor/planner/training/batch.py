"""Sequence length and global batch where the user gives none: what pre-training runs use."""

from loadfactor.catalog.models import Network

USUAL_SEQ = 8192
USUAL_BATCH_TOKENS = 4 * 2**20  # Llama 3 started at 4 M tokens


def choose_seq(network: Network) -> int:
    """Tokens in a sequence: 8,192, or all the network can see.

    >>> from loadfactor.catalog.models import network
    >>> choose_seq(network("gpt3-175b")), choose_seq(network("llama-3.1-70b"))
    (2048, 8192)
    """
    return min(network.max_context, USUAL_SEQ)


def choose_batch(seq: int, gpus: int) -> int:
    """Sequences in a step: about 4 M tokens, rounded to the GPUs (or a half, a quarter … of them) so that ranks divide it.

    >>> choose_batch(8192, 512), choose_batch(2048, 3072), choose_batch(8192, 576)
    (512, 3072, 576)
    """
    wanted = max(USUAL_BATCH_TOKENS // seq, 1)
    share = gpus
    while share > 1.5 * wanted and share % 2 == 0:
        share //= 2
    return max(round(wanted / share), 1) * share
