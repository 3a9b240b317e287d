"""What an encoding lost, as counts and sums: by kind of matrix, as quantization_report.json has it.

Which values to compare is for comparison.py to say.
"""

import math
import re
from dataclasses import dataclass, fields

import numpy as np

from nvfp4_checker import codecs

KINDS = (
    (r"head", "head"),
    (r".*\.ffn\.experts\.\d+\.w1", "expert gate"),
    (r".*\.ffn\.experts\.\d+\.w3", "expert up"),
    (r".*\.ffn\.experts\.\d+\.w2", "expert down"),
    (r".*\.ffn\.shared_experts\.w[123]", "shared expert"),
    (r".*\.attn\.(w\w+|indexer\.wq_b)", "attention"),
    (r".*\.attn\..*", "compressor"),
    (r"mtp\.\d+\.[eh]_proj", "draft input"),
)


def kind_of(name):
    return next(kind for pattern, kind in KINDS if re.fullmatch(pattern, name))


def layer_of(name):
    found = re.match(r"layers\.(\d+)\.", name)
    return int(found[1]) if found else -1


@dataclass
class Tally:
    """What encoding lost; the counts are defined in docs/quantization.md."""

    values: int = 0
    exact_values: int = 0
    source_squares: float = 0.0
    error_squares: float = 0.0
    dot: float = 0.0
    decoded_squares: float = 0.0
    quant_blocks: int = 0
    cast_blocks: int = 0
    reencoded_blocks: int = 0
    zeroed_blocks: int = 0
    saturated_values: int = 0
    scales_too_large: int = 0
    scales_too_small: int = 0
    worst_error: float = 0.0

    def add(self, other):
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            worst = field.name == "worst_error"
            setattr(self, field.name, max(mine, theirs) if worst else mine + theirs)

    @property
    def lossless(self):
        return self.exact_values == self.values

    @property
    def exact_share(self):
        return self.exact_values / self.values if self.values else 1.0

    @property
    def relative_error(self):
        return math.sqrt(self.error_squares / self.source_squares) if self.error_squares else 0.0

    @property
    def cosine(self):
        product = self.source_squares * self.decoded_squares
        return self.dot / math.sqrt(product) if product else float(product == self.error_squares)


def tally_values(source, decoded):
    """The part of a tally that two matrices of FP32 values give."""
    tally = Tally(values=source.size)
    tally.exact_values = int((source.view(np.uint32) == decoded.view(np.uint32)).sum())
    wide, wide_decoded = source.astype(np.float64), decoded.astype(np.float64)
    squares, errors = wide**2, (wide_decoded - wide) ** 2
    tally.source_squares, tally.error_squares = float(squares.sum()), float(errors.sum())
    tally.dot, tally.decoded_squares = float((wide * wide_decoded).sum()), float(
        (wide_decoded**2).sum()
    )
    shape = (source.shape[0], -1, codecs.NVFP4_BLOCK)
    block_squares = squares.reshape(shape).sum(axis=2)
    block_errors = errors.reshape(shape).sum(axis=2)
    lossy = block_errors > 0
    if lossy.any():
        with np.errstate(divide="ignore"):
            tally.worst_error = math.sqrt((block_errors[lossy] / block_squares[lossy]).max())
    return tally


def count_blocks(tally, is_fp4, made, values, codes, scales, cast):
    """Counts of blocks and saturated values; blocks that are cast can only be counted as such."""
    tally.quant_blocks = cast.size
    if is_fp4:
        tally.cast_blocks = int(cast.sum())
        tally.reencoded_blocks = cast.size - tally.cast_blocks
    blocks = np.abs(values).reshape(*scales.shape, codecs.NVFP4_BLOCK)
    block_amax = blocks.max(axis=2, initial=0)
    has_code = (codes & 0x77).reshape(*scales.shape, -1).any(axis=2)
    tally.zeroed_blocks = int((~has_code & (block_amax > 0)).sum())
    divisors = codecs.e4m3_values(scales) * made.global_scale
    with np.errstate(over="ignore"):
        beyond = (blocks > (np.float32(7) * divisors)[:, :, None]) & (divisors > 0)[:, :, None]
        wanted = block_amax / (np.float32(6) * made.global_scale)
    tally.saturated_values = int((beyond & ~cast[:, :, None]).sum())
    tally.scales_too_large = int(((wanted > 464) & ~cast).sum())
    # A wanted scale may underflow to 0, but that of a block of zeros is not missed.
    too_small = (block_amax > 0) & (wanted <= 2.0**-10)
    tally.scales_too_small = int((too_small & ~cast).sum())
