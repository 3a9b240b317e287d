"""Compares a quantised model to its source: what was lost, whether the bytes are those that the
documented rules give, and whether quantization_report.json tells the same.

The rules for the model by itself are in tensor_rules.py.
"""

import math
import re

import numpy as np

from nvfp4_checker import codecs
from nvfp4_checker.config_rules import CONFIG
from nvfp4_checker.encoding_rule import Encoding
from nvfp4_checker.loss import Tally, count_blocks, kind_of, layer_of, tally_values
from nvfp4_checker.tensor_rules import pair_of

REPORT = "quantization_report.json"
# What whoever writes a checkpoint says of it. The rest of config.json is how the model computes.
WRITTEN_ANEW = {
    "_name_or_path",
    "architectures",
    "dtype",
    "expert_dtype",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
}
# A matrix with other bytes than the rule's that is further off does not decode to its source at
# all. E2M1's widest gap, 4 to 6, is off by a fifth at most, and a block scale of E4M3 by a
# sixteenth; values near FP32's smallest may lose more under the rule itself.
MAX_RELATIVE_ERROR = 0.3
# Sums over up to 1e12 FP64 values in another order.
# Of FP4 sources the report sums exact products, this check the FP32 that they decode to: each
# within 2^-24.
SUM_TOLERANCE = 2**-23
CHUNK_BYTES = 1 << 24
SUMS = ("source_squares", "error_squares", "dot", "exact_share", "relative_error", "cosine")
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


def groups_of(matrices):
    """Lists of names that share a global scale: w1 and w3 of an expert, the others alone."""
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
        self.tallies = {}  # of (kind, layer): of all NVFP4 that the model has
        self.chosen = {}  # the same, of what the report says was quantised
        self.stores_reciprocal = quantized.layout == "compressed-tensors"
        self.inexact_scales = 0
        options = (report or {}).get("options", {})
        self.rounding = options.get("rounding", "nearest_even")
        self.four_over_six = options.get("four-over-six", "off") == "on"
        self.modules = options.get("modules", "*").split(",")
        if self.rounding not in codecs.ROUNDINGS:
            raise ValueError(f"{REPORT}: options.rounding is {self.rounding!r}")

    def run(self):
        made = {n: m for n, m in self.quantized.matrices.items() if m.form == "NVFP4"}
        self._compare_copies(made)
        self._compare_configs()
        for names in groups_of(made):
            missing = [name for name in names if name not in self.source.matrices]
            if missing:
                self._refuse(missing[0], "source", "is no matrix that the source has")
                continue
            sources = [self.source.matrices[name] for name in names]
            encoding = Encoding(sources, self.rounding, self.four_over_six, self.stores_reciprocal)
            for name, source in zip(names, sources):
                key = kind_of(name), layer_of(name)
                tally = self._compare_matrix(made[name], source, encoding)
                self.tallies.setdefault(key, Tally()).add(tally)
                if source.form != "NVFP4" or is_chosen(name, self.modules):
                    self.chosen.setdefault(key, Tally()).add(tally)
        if self.report is not None:
            self._compare_report()
        if self.inexact_scales:
            self.findings.note(
                f"{self.inexact_scales} global scales have no exact reciprocal, which this layout "
                "stores: values differ by up to 6e-8"
            )

    def totals(self):
        """{kind: Tally}, and "total": as the report counts them, if there is one."""
        totals = {}
        counted = self.tallies if self.report is None else self.chosen
        for (kind, _), tally in sorted(counted.items()):
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

    def _compare_configs(self):
        made, source = self.quantized.model.config, self.source.model.config
        keys = set(source) - WRITTEN_ANEW
        for key in sorted(keys & set(made)):
            if made[key] != source[key]:
                self._refuse(
                    CONFIG, "copy", f"{key} is {made[key]!r}, in the source {source[key]!r}"
                )
        missing = sorted(keys - set(made))
        if missing:
            self.findings.note(f"{CONFIG} lacks what the source's has: {', '.join(missing)}")

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
        is_rounded = False
        if self.stores_reciprocal and encoding.is_cast:
            is_rounded = self._is_rounded(made.global_scale, encoding.global_scale)
            self.inexact_scales += is_rounded
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
            is_fp4 = source.form in ("MXFP4", "NVFP4")
            count_blocks(part, is_fp4, made, values, codes, scales, cast)
            tally.add(part)
            wrong = (codes != want_codes).reshape(*scales.shape, -1).any(axis=2)
            wrong |= (scales != want_scales) & ~empty
            if wrong.any() and first is None:
                first = np.argwhere(wrong)[0] + (begin, 0)
            differing += int(wrong.sum())
        is_scaled_otherwise = (
            made.global_scale != encoding.global_scale
            and not is_rounded
            and tally.source_squares > 0
        )
        if (differing or is_scaled_otherwise) and tally.relative_error > MAX_RELATIVE_ERROR:
            self._refuse(
                made.name,
                "source",
                f"does not decode to the source: relative RMS error "
                f"{tally.relative_error:.3g}; {explain(made, source)}",
            )
        elif is_scaled_otherwise:
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

    def _is_rounded(self, decodes, meant):
        """Whether `meant` has no FP32 reciprocal, and `decodes` comes of the nearest there is."""
        nearest = np.float32(1) / (np.float32(1) / meant)
        return nearest != meant and decodes == nearest

    # ---- the report

    def _compare_report(self):
        claimed = {}
        for kind in self.report.get("kinds", []):
            claimed[kind["kind"], None] = kind
            for layer in kind["layers"]:
                claimed[kind["kind"], layer["layer"]] = layer
        measured = dict(self.chosen)
        for kind, tally in self.totals().items():
            if kind != "total":
                measured[kind, None] = tally
        for kind, layer in sorted(set(claimed) ^ set(measured), key=str):
            side = "the report only" if (kind, layer) in claimed else "the tensors only"
            self._refuse(REPORT, "report", f"{kind}, layer {layer}: in {side}")
        for key in set(claimed) & set(measured):
            self._compare_entry(f"{key[0]}, layer {key[1]}", claimed[key], measured[key])
        self._compare_entry("total", self.report["total"], self.totals()["total"])
        self._compare_files()

    def _compare_entry(self, where, claim, tally):
        worst = claim.get("worst_block", {}).get("relative_error", 0.0)
        figures = [(key, claim.get(key), getattr(tally, key)) for key in SUMS]
        for key, theirs, mine in [*figures, ("worst_block", worst, tally.worst_error)]:
            if theirs is None or not math.isclose(mine, theirs, rel_tol=SUM_TOLERANCE):
                self._refuse(REPORT, "report", f"{where}: {key} is {theirs}, by this check {mine}")
        for key in COUNTS:
            theirs, mine = claim.get(key), getattr(tally, key)
            if theirs != mine:
                self._refuse(REPORT, "report", f"{where}: {key} is {theirs}, by this check {mine}")

    def _compare_files(self):
        for file in self.report.get("files", []):
            path = self.quantized.model.folder / file["name"]
            size = path.stat().st_size if path.exists() else "missing"
            if size != file["bytes"]:
                self._refuse(REPORT, "report", f"{file['name']}: {file['bytes']} bytes, is {size}")


def is_chosen(name, modules):
    """Whether one of the words of --modules, or of its patterns with *, chooses the matrix."""
    if name.startswith("mtp."):
        return False
    words = {
        "expert gate": "experts",
        "expert up": "experts",
        "expert down": "experts",
        "shared expert": "shared_experts",
    }
    word = words.get(kind_of(name), kind_of(name))  # attention, head; no word for compressors
    is_in_all = word in ("experts", "shared_experts", "attention", "head")
    for module in modules:
        if module == word or (module == "all" and is_in_all):
            return True
        if re.fullmatch(re.escape(module).replace(r"\*", ".*"), name):
            return True
    return False


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
