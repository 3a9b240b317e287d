"""Compares a quantised model to its source: what was lost, whether the bytes are those that the
documented rules give, and whether quantization_report.json tells the same.

The rules for the model by itself are in tensor_rules.py.
"""

import math
import re
from dataclasses import dataclass, fields

import numpy as np

from nvfp4_checker import codecs
from nvfp4_checker.tensor_rules import pair_of

REPORT = "quantization_report.json"
# Beyond this a matrix does not decode to its source at all. E2M1's widest gap, 4 to 6, is off by a
# fifth at most, and a block scale of E4M3 by a sixteenth.
MAX_RELATIVE_ERROR = 0.3
# Sums over up to 1e12 FP64 values in another order.
SUM_TOLERANCE = 1e-8
CHUNK_BYTES = 1 << 24
COUNTS = (
    "values",
    "exact_values",
    "quant_blocks",
    "cast_blocks",
    "reencoded_blocks",
    "zeroed_blocks",
    "saturated_values",
    "scales_too_large",
    "scales_too_small",
)

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


class Encoding:
    """What the documented rules make of a group of source matrices that share a global scale."""

    def __init__(self, sources, rounding, four_over_six):
        self.rounding, self.four_over_six = rounding, four_over_six
        forms = {source.form for source in sources}
        self.is_cast = forms in ({"MXFP4"}, {"NVFP4"})
        self.global_scale = self._global_scale(sources, forms)

    def _global_scale(self, sources, forms):
        if forms == {"NVFP4"}:
            return max(source.global_scale for source in sources)
        if forms == {"MXFP4"}:
            largest = max(self._largest_exponent(source) for source in sources)
            return np.float32(2.0 ** (largest - 8)) if largest > -128 else np.float32(1)
        amax = np.float32(0)
        for source in sources:
            for begin, end in source.chunks():
                amax = max(amax, np.abs(source.decode(begin, end)).max(initial=np.float32(0)))
        return codecs.global_scale_of(amax, 256 if self.four_over_six else 448)

    @staticmethod
    def _largest_exponent(source):
        """Of an MXFP4 block that holds a nonzero code; -128 without one."""
        largest = -128
        for begin, end in source.chunks():
            codes = codecs.unpack(source.weight.rows(begin, end).view(np.uint8)) & 7
            scales = source.scales.rows(begin, end).view(np.uint8)
            used = codes.reshape(*scales.shape, codecs.MXFP4_BLOCK).any(axis=2)
            largest = max(largest, int(scales[used].max(initial=0)) - 127 if used.any() else -128)
        return largest

    def encode(self, source, begin, end):
        """Rows [begin, end): packed codes, block scales, and for each block whether it is cast, and
        whether its scale is the encoder's choice (of a block without a nonzero code)."""
        values = source.decode(begin, end)
        codes, scales = codecs.encode_nvfp4(
            values, self.global_scale, self.rounding, self.four_over_six and not self.is_cast
        )
        if not self.is_cast:
            none = np.zeros(scales.shape, bool)
            return codes, scales, none, none
        stored = source.weight.rows(begin, end).view(np.uint8)
        multipliers = source.scales.rows(begin, end).view(np.uint8)
        if source.form == "MXFP4":
            multipliers = np.repeat(codecs.e8m0_values(multipliers).astype(np.float64), 2, axis=1)
        else:
            multipliers = codecs.e4m3_values(multipliers).astype(np.float64) * np.float64(
                source.global_scale
            )
        wanted = multipliers / np.float64(self.global_scale)
        cast_scales = codecs.encode_e4m3(np.minimum(wanted, 448).astype(np.float32))
        # In FP64: the ratio of two global scales may round to a number that E4M3 has.
        exact = codecs.e4m3_values(cast_scales).astype(np.float64) * np.float64(self.global_scale)
        blocks = codecs.unpack(stored).reshape(*scales.shape, codecs.NVFP4_BLOCK)
        empty = ~(blocks & 7).any(axis=2)
        cast = (exact == multipliers) | empty
        wide = np.repeat(cast, codecs.NVFP4_BLOCK // 2, axis=1)
        return np.where(wide, stored, codes), np.where(cast, cast_scales, scales), cast, empty


def groups_of(matrices):
    """Lists of names that share a global scale: w1 and w3 of an expert, every other matrix alone."""
    for name in matrices:
        pair = pair_of(name)
        if pair in matrices:
            if name.endswith(".w1"):
                yield [name, pair]
        else:
            yield [name]


class Comparison:
    """Of the model `quantized` to `source`; each is a TensorRules after run()."""

    def __init__(self, quantized, source, report, findings):
        self.quantized, self.source = quantized, source
        self.report, self.findings = report, findings
        self.tallies = {}  # of (kind, layer)
        options = (report or {}).get("options", {})
        self.rounding = options.get("rounding", "nearest_even")
        self.four_over_six = bool(options.get("four_over_six", False))

    def run(self):
        made = {n: m for n, m in self.quantized.matrices.items() if m.form == "NVFP4"}
        self._compare_copies(made)
        for names in groups_of(made):
            missing = [name for name in names if name not in self.source.matrices]
            if missing:
                self._refuse(missing[0], "source", "is no matrix that the source has")
                continue
            sources = [self.source.matrices[name] for name in names]
            encoding = Encoding(sources, self.rounding, self.four_over_six)
            for name, source in zip(names, sources):
                tally = self._compare_matrix(made[name], source, encoding)
                self.tallies.setdefault((kind_of(name), layer_of(name)), Tally()).add(tally)
        if self.report is not None:
            self._compare_report()

    def totals(self):
        """{kind: Tally}, and "total"."""
        totals = {}
        for (kind, _), tally in sorted(self.tallies.items()):
            totals.setdefault(kind, Tally()).add(tally)
        everything = Tally()
        for tally in totals.values():
            everything.add(tally)
        return {**totals, "total": everything}

    def _refuse(self, where, rule, message):
        self.findings.refuse(where, rule, message)

    # ---- tensors that are not quantised

    def _compare_copies(self, made):
        """What is not NVFP4 in the result has the source's names, dtypes, shapes and bytes."""

        def others(rules):
            return {
                n: t for n, t in rules.model.tensors.items() if n.rpartition(".")[0] not in made
            }

        copies, originals = others(self.quantized), others(self.source)
        for name in sorted(set(originals) - set(copies)):
            self._refuse(name, "copy", "is in the source only")
        for name in sorted(set(copies) - set(originals)):
            self._refuse(name, "copy", "is not in the source")
        for name in sorted(set(copies) & set(originals)):
            copy, original = copies[name], originals[name]
            if (copy.dtype, copy.shape) != (original.dtype, original.shape):
                self._refuse(
                    name,
                    "copy",
                    f"is {copy.dtype} {list(copy.shape)}, in the source "
                    f"{original.dtype} {list(original.shape)}",
                )
                continue
            for begin in range(0, copy.num_bytes, CHUNK_BYTES):
                end = min(begin + CHUNK_BYTES, copy.num_bytes)
                if not np.array_equal(copy.bytes(begin, end), original.bytes(begin, end)):
                    self._refuse(name, "copy", "has other bytes than the source")
                    break

    # ---- matrices

    def _compare_matrix(self, made, source, encoding):
        if (made.rows, made.cols) != (source.rows, source.cols):
            self._refuse(
                made.name,
                "source",
                f"is {made.rows} x {made.cols}, in the source " f"{source.rows} x {source.cols}",
            )
            return Tally()
        tally, differing, first = Tally(), 0, None
        for begin, end in made.chunks():
            values, decoded = source.decode(begin, end), made.decode(begin, end)
            if not np.isfinite(values).all():
                row, col = np.argwhere(~np.isfinite(values))[0]
                self._refuse(
                    made.name, "nan-value", f"in the source, row {begin + row}, column {col}"
                )
                return tally
            codes = made.weight.rows(begin, end)
            scales = made.scales.rows(begin, end).view(np.uint8)
            want_codes, want_scales, cast, empty = encoding.encode(source, begin, end)
            part = tally_values(values, decoded)
            count_blocks(part, encoding, made, values, codes, scales, cast)
            tally.add(part)
            wrong = (codes != want_codes).reshape(*scales.shape, -1).any(axis=2)
            wrong |= (scales != want_scales) & ~empty
            if wrong.any() and first is None:
                first = np.argwhere(wrong)[0] + (begin, 0)
            differing += int(wrong.sum())
        if tally.relative_error > MAX_RELATIVE_ERROR:
            self._refuse(
                made.name,
                "source",
                f"does not decode to the source: relative RMS error "
                f"{tally.relative_error:.3g}; {explain(made, source)}",
            )
        elif made.global_scale != encoding.global_scale and tally.source_squares > 0:
            self._refuse(
                made.name,
                "encoding",
                f"has a global scale of {made.global_scale}, the rule "
                f"gives {encoding.global_scale}",
            )
        elif differing:
            self._refuse(
                made.name,
                "encoding",
                f"{differing} of {tally.quant_blocks} blocks have "
                f"other bytes than the rule gives, first row {first[0]}, block {first[1]}",
            )
        return tally

    # ---- the report

    def _compare_report(self):
        claimed = {}
        for kind in self.report.get("kinds", []):
            claimed[kind["kind"], None] = kind
            for layer in kind["layers"]:
                claimed[kind["kind"], layer["layer"]] = layer
        measured = dict(self.tallies)
        for kind, tally in self.totals().items():
            if kind != "total":
                measured[kind, None] = tally
        for kind, layer in sorted(set(claimed) ^ set(measured), key=str):
            side = "the report only" if (kind, layer) in claimed else "the tensors only"
            self._refuse(REPORT, "report", f"{kind}, layer {layer}: in {side}")
        for key in set(claimed) & set(measured):
            self._compare_entry(f"{key[0]}, layer {key[1]}", claimed[key], measured[key])
        self._compare_entry("total", self.report["total"], self.totals()["total"])

    def _compare_entry(self, where, claim, tally):
        for key in COUNTS:
            if claim.get(key) != getattr(tally, key):
                self._refuse(
                    REPORT,
                    "report",
                    f"{where}: {key} is {claim.get(key)}, by this check " f"{getattr(tally, key)}",
                )
        for key in (
            "source_squares",
            "error_squares",
            "dot",
            "exact_share",
            "relative_error",
            "cosine",
        ):
            mine, theirs = getattr(tally, key), claim.get(key)
            if theirs is None or not math.isclose(mine, theirs, rel_tol=SUM_TOLERANCE):
                self._refuse(REPORT, "report", f"{where}: {key} is {theirs}, by this check {mine}")


def count_blocks(tally, encoding, made, values, codes, scales, cast):
    """Counts of blocks and saturated values; blocks that are cast can only be counted as such."""
    tally.quant_blocks = cast.size
    if encoding.is_cast:
        tally.cast_blocks = int(cast.sum())
        tally.reencoded_blocks = cast.size - tally.cast_blocks
    blocks = np.abs(values).reshape(*scales.shape, codecs.NVFP4_BLOCK)
    block_amax = blocks.max(axis=2, initial=0)
    has_code = (codes & 0x77).reshape(*scales.shape, -1).any(axis=2)
    tally.zeroed_blocks = int((~has_code & (block_amax > 0)).sum())
    divisors = codecs.e4m3_values(scales) * made.global_scale
    beyond = (blocks > (np.float32(7) * divisors)[:, :, None]) & (divisors > 0)[:, :, None]
    with np.errstate(over="ignore"):
        wanted = block_amax / (np.float32(6) * made.global_scale)
    tally.saturated_values = int((beyond & ~cast[:, :, None]).sum())
    tally.scales_too_large = int(((wanted > 464) & ~cast).sum())
    tally.scales_too_small = int(((wanted > 0) & (wanted <= 2.0**-10) & ~cast).sum())


# ---- what went wrong, in words


def swizzled_to_linear(scales):
    """Block scales [rows, cols] whose bytes lie in the 128x4 order of kernels, in row order."""
    rows, cols = scales.shape
    if rows % 128 or cols % 4:
        return None
    tiles = scales.reshape(rows // 128, cols // 4, 32, 4, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4).reshape(rows, cols))


def explain(made, source):
    """Names the mistake that accounts for a matrix which does not decode to its source."""
    values = np.concatenate([source.decode(begin, end) for begin, end in made.chunks()])
    packed = made.weight.rows(0, made.rows)
    scales = made.scales.rows(0, made.rows).view(np.uint8)
    candidates = {
        "its nibbles are swapped: the first value belongs into the low one": (
            (packed >> 4 | packed << 4).astype(np.uint8),
            scales,
            made.global_scale,
        ),
        "its global scale is the reciprocal": (packed, scales, np.float32(1) / made.global_scale),
    }
    linear = swizzled_to_linear(scales)
    if linear is not None:
        candidates["its block scales are in the swizzled 128x4 order"] = (
            packed,
            linear,
            made.global_scale,
        )
    other = pair_of(made.name)
    for reason, parts in candidates.items():
        if tally_values(values, codecs.decode_nvfp4(*parts)).relative_error <= MAX_RELATIVE_ERROR:
            return reason
    return f"is it another matrix{', perhaps ' + other if other else ''}?"
