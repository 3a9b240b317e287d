"""The rules for tensors: how each matrix is stored, which values its scales may have, and that
nothing is missing or left over.

What config.json says of them is left to config_rules.py.
"""

import re
from dataclasses import dataclass

import numpy as np

from nvfp4_checker import codecs
from nvfp4_checker.model_files import Tensor
from nvfp4_checker.tensor_table import expected_tensors, is_dspark

CHUNK_VALUES = 1 << 20  # decoded at a time
# Trained weights and inputs are smaller by far than 2688, which a scale of 1 gives. Above the larger
# bound a reciprocal would be of values below 1e-6, which is no likelier.
RECIPROCAL_SCALES = (1.0, 2.0**32)
SUFFIXES = (
    "weight",
    "weight_packed",
    "scale",
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "input_scale",
    "input_global_scale",
)
FP8_SCALES = ("scale", "weight_scale_inv", "weight_scale")
# A draft block's copies of embedding and head, which nobody needs.
UNUSED = re.compile(r"mtp\.\d+\.(emb\.tok_emb|embed|head)\.weight$")


@dataclass
class Matrix:
    """A matrix with the tensors that hold it; scalars are factors, not reciprocals."""

    name: str  # without ".weight"
    form: str  # BF16, FP8, MXFP4 or NVFP4
    weight: Tensor
    rows: int
    cols: int
    scales: Tensor = None
    global_scale: np.float32 = None
    input_scale: np.float32 = None

    def chunks(self):
        """Ranges of rows of which the values fit into memory."""
        step = max(1, CHUNK_VALUES // max(1, self.cols))
        for begin in range(0, self.rows, step):
            yield begin, min(self.rows, begin + step)

    def decode(self, begin, end):
        """Rows [begin, end) as FP32."""
        stored = self.weight.rows(begin, end)
        if self.form == "NVFP4":
            scales = self.scales.rows(begin, end).view(np.uint8)
            return codecs.decode_nvfp4(stored, scales, self.global_scale)
        if self.form == "MXFP4":
            scales = self.scales.rows(begin, end).view(np.uint8)
            return codecs.decode_mxfp4(stored.view(np.uint8), scales)
        if self.form == "FP8":
            return codecs.decode_fp8(
                stored.view(np.uint8), self.scales.all().astype(np.float32), begin
            )
        return stored.astype(np.float32)


def pair_of(name):
    """The matrix that shares its input and scales with this one: w1 and w3 of a routed expert."""
    found = re.fullmatch(r"(.*\.ffn\.experts\.\d+)\.w([13])", name)
    return f"{found[1]}.w{'3' if found[2] == '1' else '1'}" if found else None


class TensorRules:
    """Reads a model's matrices and refuses what breaks a rule. `layout`: modelopt,
    compressed-tensors or auto; afterwards the one found, or None for a model without NVFP4.
    `has_source`: the weights will be compared, so their size needs no guess."""

    def __init__(self, model, findings, layout="auto", has_source=False):
        self.model, self.findings, self.has_source = model, findings, has_source
        self.layout = self._find_layout(layout)
        self.matrices = {}
        self.scalar_shapes = {}
        self.broken = set()  # matrices that were refused

    def run(self):
        stems = {}
        for name in self.model.tensors:
            stem, _, suffix = name.rpartition(".")
            if suffix in SUFFIXES:
                stems.setdefault(stem, set()).add(suffix)
        self._check_names(stems)
        for stem, suffixes in stems.items():
            if stem in self.linears or suffixes != {"weight"}:
                self._read_matrix(stem, suffixes)
        self._check_scalar_shapes()
        for matrix in self.matrices.values():
            self._check_values(matrix)
        self._check_experts()

    def _refuse(self, where, rule, message):
        self.findings.refuse(where, rule, message)

    # ---- names

    def _find_layout(self, wanted):
        modelopt = [n for n in self.model.tensors if n.endswith(".weight_scale_2")]
        packed = [
            n for n in self.model.tensors if n.endswith((".weight_packed", ".weight_global_scale"))
        ]
        if modelopt and packed:
            self._refuse(packed[0], "layout", f"stands beside ModelOpt's {modelopt[0]}")
        found = "modelopt" if modelopt else "compressed-tensors" if packed else None
        if wanted != "auto" and found and found != wanted:
            self._refuse((modelopt or packed)[0], "layout", f"is {found}, not {wanted}")
        return wanted if wanted != "auto" else found

    def _check_names(self, stems):
        tensors, config = self.model.tensors, self.model.config
        self.linears, known = {}, set()
        for want in expected_tensors(config, tensors):
            if want.kind == "linear":
                self.linears[want.name] = want.shape
                if not stems.get(want.name, set()) & {"weight", "weight_packed"}:
                    self._refuse(
                        want.name, "missing-tensor", "has neither .weight nor .weight_packed"
                    )
                continue
            known.add(want.name)
            tensor = tensors.get(want.name)
            if tensor is None:
                self._refuse(want.name, "missing-tensor", f"should be {list(want.shape)}")
                continue
            dtypes = {"plain": ("BF16", "F32"), "f32": ("F32",), "i64": ("I64",)}[want.kind]
            if tensor.dtype not in dtypes:
                self._refuse(want.name, "dtype", f"is {tensor.dtype}, not {' or '.join(dtypes)}")
            if tensor.shape != want.shape:
                self._refuse(want.name, "shape", f"is {list(tensor.shape)}, not {list(want.shape)}")
        dspark = is_dspark(config, tensors)
        for name in tensors:
            stem, _, suffix = name.rpartition(".")
            is_part = stem in self.linears and suffix in SUFFIXES
            if (
                name in known
                or is_part
                or UNUSED.match(name)
                or (dspark and name.startswith("mtp."))
            ):
                continue
            self._refuse(name, "unknown-tensor", "belongs to no V4 model of this config.json")
        if not any(name.startswith("mtp.") for name in tensors):
            self.findings.note("the draft block (mtp.*) is missing whole")

    # ---- how a matrix is stored

    def _read_matrix(self, stem, suffixes):
        before = len(self.findings.refusals)
        matrix = self._matrix_of(stem, suffixes)
        if matrix is not None and stem in self.linears:
            if (matrix.rows, matrix.cols) != self.linears[stem]:
                self._refuse(
                    stem,
                    "shape",
                    f"is {matrix.rows} x {matrix.cols}, not "
                    + " x ".join(map(str, self.linears[stem])),
                )
        if matrix is not None and len(self.findings.refusals) == before:
            self.matrices[stem] = matrix
        else:
            self.broken.add(stem)

    def _matrix_of(self, stem, suffixes):
        part = {suffix: self.model.tensors[f"{stem}.{suffix}"] for suffix in suffixes}
        if "weight_packed" in part:
            return self._nvfp4(
                stem, part, "weight_packed", "weight_global_scale", "input_global_scale"
            )
        if "weight" not in part:
            self._refuse(f"{stem}.{min(suffixes)}", "leftover-scale", "has no weight beside it")
            return None
        dtype = part["weight"].dtype
        if dtype == "U8" or "weight_scale_2" in part:
            return self._nvfp4(stem, part, "weight", "weight_scale_2", "input_scale")
        if dtype == "I8":
            return self._scaled(stem, part, "MXFP4", ("scale",), ("F8_E8M0",))
        if dtype == "F8_E4M3":
            spellings = ("scale",) if self.layout == "modelopt" else FP8_SCALES
            return self._scaled(stem, part, "FP8", spellings, ("F8_E8M0", "F32", "BF16"))
        if dtype not in ("BF16", "F32"):
            self._refuse(f"{stem}.weight", "dtype", f"is {dtype}, which is no format of a matrix")
            return None
        self._only(stem, part, {"weight"}, "BF16")
        shape = part["weight"].shape
        if len(shape) != 2:
            self._refuse(f"{stem}.weight", "shape", f"is {list(shape)}, not a matrix")
            return None
        return Matrix(stem, "BF16", part["weight"], *shape)

    def _only(self, stem, part, allowed, form):
        for suffix in sorted(set(part) - allowed):
            self._refuse(
                f"{stem}.{suffix}", "leftover-scale", f"does not belong to a matrix in {form}"
            )

    def _require(self, stem, part, dtypes):
        """Whether all of the tensors named in `dtypes` are there, in these dtypes."""
        good = True
        for suffix, allowed in dtypes.items():
            if suffix not in part:
                self._refuse(f"{stem}.{suffix}", "missing-scale", "is missing")
                good = False
            elif part[suffix].dtype not in allowed:
                self._refuse(
                    f"{stem}.{suffix}",
                    "dtype",
                    f"is {part[suffix].dtype}, not {' or '.join(allowed)}",
                )
                good = False
        return good

    def _scaled(self, stem, part, form, spellings, dtypes):
        """MXFP4 and FP8: a weight and one tensor of scales."""
        present = [suffix for suffix in spellings if suffix in part]
        suffix = present[0] if present else spellings[0]
        self._only(stem, part, {"weight", suffix}, form)
        if not self._require(stem, part, {suffix: dtypes}):
            return None
        weight, scales = part["weight"], part[suffix]
        if len(weight.shape) != 2:
            self._refuse(f"{stem}.weight", "shape", f"is {list(weight.shape)}, not a matrix")
            return None
        rows, cols = weight.shape
        if form == "MXFP4":
            cols *= 2
            want = (rows, cols // codecs.MXFP4_BLOCK)
        else:
            want = (-(-rows // codecs.FP8_TILE), -(-cols // codecs.FP8_TILE))
        if scales.shape != want:
            self._refuse(f"{stem}.{suffix}", "shape", f"is {list(scales.shape)}, not {list(want)}")
            return None
        return Matrix(stem, form, weight, rows, cols, scales)

    def _nvfp4(self, stem, part, weight_name, global_name, input_name):
        self._only(stem, part, {weight_name, "weight_scale", global_name, input_name}, "NVFP4")
        required = {weight_name: ("U8",), "weight_scale": ("F8_E4M3",), global_name: ("F32",)}
        if input_name in part:
            required[input_name] = ("F32",)
        if not self._require(stem, part, required):
            return None
        weight, scales = part[weight_name], part["weight_scale"]
        if len(weight.shape) != 2 or weight.shape[1] * 2 % codecs.NVFP4_BLOCK:
            self._refuse(
                f"{stem}.{weight_name}",
                "shape",
                f"is {list(weight.shape)}, not [rows, a multiple of 8]",
            )
            return None
        rows, cols = weight.shape[0], weight.shape[1] * 2
        want = (rows, cols // codecs.NVFP4_BLOCK)
        if scales.shape != want:
            self._refuse(
                f"{stem}.weight_scale",
                "shape",
                f"is {list(scales.shape)}, not {list(want)}; no padding, not swizzled",
            )
            return None
        reciprocal = weight_name == "weight_packed"
        global_scale = self._scalar(part[global_name], reciprocal)
        input_scale = self._scalar(part[input_name], reciprocal) if input_name in part else None
        if global_scale is None or (input_name in part and input_scale is None):
            return None
        return Matrix(stem, "NVFP4", weight, rows, cols, scales, global_scale, input_scale)

    def _scalar(self, tensor, reciprocal):
        """The factor that a global or input scale stands for; None where it is refused."""
        if tensor.shape not in ((), (1,)):
            self._refuse(tensor.name, "shape", f"is {list(tensor.shape)}, not [] or [1]")
            return None
        self.scalar_shapes.setdefault(tensor.shape, tensor.name)
        value = tensor.all().reshape(-1)[0]
        with np.errstate(all="ignore"):
            inverse = np.float32(1) / value
        # ModelOpt's weight_scale_2 only multiplies; engines divide by all others.
        divides = not tensor.name.endswith(".weight_scale_2")
        if not (0 < value < np.inf and (not divides or 0 < inverse < np.inf)):
            and_inverse = " and its reciprocal" if divides else ""
            self._refuse(
                tensor.name,
                "bad-scalar",
                f"is {value}; it{and_inverse} must be finite and above 0",
            )
            return None
        return inverse if reciprocal else value

    def _check_scalar_shapes(self):
        if len(self.scalar_shapes) > 1:
            self._refuse(
                self.scalar_shapes[(1,)], "shape", f"is [1], while {self.scalar_shapes[()]} is []"
            )

    # ---- values

    def _check_values(self, matrix):
        check = {"NVFP4": self._check_nvfp4, "MXFP4": self._check_mxfp4, "FP8": self._check_fp8}
        if matrix.form in check:
            check[matrix.form](matrix)

    def _check_nvfp4(self, matrix):
        some_code, some_scaled, zeroed = False, False, 0
        for begin, end in matrix.chunks():
            scales = matrix.scales.rows(begin, end).view(np.uint8)
            if (scales > 0x7E).any():
                row, col = np.argwhere(scales > 0x7E)[0]
                kind = "NaN" if scales[row, col] & 0x7F == 0x7F else "negative"
                self._refuse(
                    matrix.scales.name,
                    "nan-scale",
                    f"row {begin + row}, block {col}: 0x{scales[row, col]:02X} is {kind}",
                )
                return
            codes = codecs.unpack(matrix.weight.rows(begin, end)) & 7
            nonzero = codes.reshape(*scales.shape, codecs.NVFP4_BLOCK).any(axis=2)
            some_code |= bool(nonzero.any())
            some_scaled |= bool((nonzero & (scales > 0)).any())
            zeroed += int((nonzero & (scales == 0)).sum())
        if zeroed and not some_scaled:
            self._refuse(
                matrix.scales.name,
                "zero-scales",
                "is 0 in every block that has codes: all of the weights would be 0",
            )
        elif zeroed:
            self.findings.note(
                f"{matrix.name}: {zeroed} blocks have codes under a block scale of 0"
            )
        least, most = RECIPROCAL_SCALES
        if not self.has_source and least <= matrix.global_scale <= most and some_code:
            self._refuse(
                matrix.name,
                "reciprocal",
                f"decodes with a global scale of "
                f"{matrix.global_scale:.6g}, to weights in the thousands: is it 1 / scale?",
            )
        if matrix.input_scale is not None and least < matrix.input_scale <= most:
            self._refuse(
                matrix.name,
                "reciprocal",
                f"has an input scale of {matrix.input_scale:.6g}, "
                "inputs in the thousands: is it 1 / scale?",
            )

    def _check_mxfp4(self, matrix):
        some_code, largest = False, 0
        for begin, end in matrix.chunks():
            scales = matrix.scales.rows(begin, end).view(np.uint8)
            if (scales == 0xFF).any():
                row, col = np.argwhere(scales == 0xFF)[0]
                self._refuse(
                    matrix.scales.name, "nan-scale", f"row {begin + row}, block {col}: 0xFF"
                )
                return
            largest = max(largest, int(scales.max(initial=0)))
            some_code |= bool((matrix.weight.rows(begin, end).view(np.uint8) & 0x77).any())
        if some_code and largest == 0:
            self._refuse(
                matrix.scales.name,
                "e8m0-as-number",
                "every byte is 0, 2^-127: were values cast instead of bytes?",
            )

    def _check_fp8(self, matrix):
        scales = matrix.scales.all().astype(np.float32)
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            self._refuse(matrix.scales.name, "bad-scalar", "must be finite and above 0 everywhere")
            return
        are_bytes = (scales >= 32) & (scales <= 254) & (scales % 1 == 0)
        if matrix.scales.dtype != "F8_E8M0" and are_bytes.all():
            self._refuse(
                matrix.scales.name,
                "e8m0-as-number",
                f"{scales.flat[0]:g} and the others look like E8M0 bytes, not scales",
            )
        if matrix.scales.dtype == "F8_E8M0" and (scales == 2.0**-127).all():
            self._refuse(
                matrix.scales.name,
                "e8m0-as-number",
                "every byte is 0, 2^-127: were values cast instead of bytes?",
            )
        for begin, end in matrix.chunks():
            codes = matrix.weight.rows(begin, end).view(np.uint8)
            if (codes & 0x7F == 0x7F).any():
                row, col = np.argwhere(codes & 0x7F == 0x7F)[0]
                self._refuse(matrix.weight.name, "nan-value", f"row {begin + row}, column {col}")
                return

    # ---- experts

    def _check_experts(self):
        """Engines take an expert's w1 and w3 as one matrix, a layer's experts in one format."""
        forms, with_input, without_input = {}, {}, {}
        for name, matrix in self.matrices.items():
            found = re.fullmatch(r"(.*\.ffn)\.experts\.\d+\.w[123]", name)
            if not found:
                continue
            first = forms.setdefault(found[1], matrix)
            if matrix.form != first.form:
                self._refuse(
                    name, "mixed-experts", f"is {matrix.form}, {first.name} is {first.form}"
                )
            if matrix.form != "NVFP4":
                continue
            # Engines load a draft block as a model of its own.
            part = "draft block" if name.startswith("mtp.") else "trunk"
            (without_input if matrix.input_scale is None else with_input).setdefault(part, name)
            other = self.matrices.get(pair_of(name))
            if name.endswith(".w3") and other is not None and other.form == "NVFP4":
                for which in ("global_scale", "input_scale"):
                    if getattr(matrix, which) != getattr(other, which):
                        self._refuse(
                            name,
                            "shared-scale",
                            f"its {which.replace('_', ' ')} is "
                            f"{getattr(matrix, which)}, that of w1 {getattr(other, which)}",
                        )
        for part in sorted(set(with_input) & set(without_input)):
            self._refuse(
                without_input[part],
                "missing-scale",
                f"has no input scale, {with_input[part]} has one: it would be read as 0",
            )
