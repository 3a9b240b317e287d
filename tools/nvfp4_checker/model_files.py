"""Opens a checkpoint directory and checks how its files fit together: container, index, total size.

What the tensors mean is left to tensor_rules.py. Data is read in pieces, never mapped, so that the
memory does not grow with the model.
"""

import json
import os
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


class Findings:
    """What is wrong (refusals: where, rule, message) and what is worth knowing (notes)."""

    def __init__(self):
        self.refusals = []
        self.notes = []

    def refuse(self, where, rule, message):
        self.refusals.append((where, rule, message))

    def note(self, message):
        self.notes.append(message)


class Tensor:
    """One tensor of a shard; nothing is read before it is asked for."""

    def __init__(self, path, name, dtype, shape, begin, end):
        self.path, self.name, self.dtype, self.shape = path, name, dtype, tuple(shape)
        self.begin, self.end = begin, end  # bytes from the start of the file

    @property
    def num_bytes(self):
        return self.end - self.begin

    def bytes(self, begin, end):
        """Bytes [begin, end) of the data, as uint8."""
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.begin + begin)
            data = bytearray()
            while len(data) < end - begin:
                piece = file.read(end - begin - len(data))
                if not piece:
                    raise OSError(f"{self.path} ends within {self.name}")
                data += piece
        return np.frombuffer(data, np.uint8)

    def rows(self, begin, end):
        """Rows [begin, end) of a matrix, in the tensor's own dtype."""
        row = self.num_bytes // self.shape[0] if self.shape[0] else 0
        data = self.bytes(begin * row, end * row)
        return data.view(DTYPES[self.dtype]).reshape((end - begin,) + self.shape[1:])

    def all(self):
        return self.bytes(0, self.num_bytes).view(DTYPES[self.dtype]).reshape(self.shape)


def strict_json(path):
    """A JSON file in which no key stands twice and no NaN stands at all."""

    def pairs(items):
        keys = [key for key, _ in items]
        twice = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else ()
        if twice:
            raise ValueError(f"{path}: the key {sorted(twice)[0]!r} stands twice")
        return dict(items)

    def constant(text):
        raise ValueError(f"{path}: {text} is no JSON")

    return json.loads(
        Path(path).read_text(encoding="utf-8"), object_pairs_hook=pairs, parse_constant=constant
    )


def read_header(path, findings):
    """The tensors of one shard, after safetensors itself has accepted it; None if it did not."""
    try:
        with safe_open(path, framework="numpy") as shard:
            names = set(shard.keys())
    except SafetensorError as error:
        findings.refuse(path.name, "container", f"safetensors refuses the file: {error}")
        return None
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    assert set(header) == names
    tensors = {}
    for name, info in header.items():
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        tensor = Tensor(path, name, info["dtype"], info["shape"], begin, end)
        tensors[name] = tensor
        if info["dtype"] not in DTYPES:
            findings.refuse(name, "dtype", f"{info['dtype']} occurs in no V4 checkpoint")
        elif begin % np.dtype(DTYPES[info["dtype"]]).itemsize:
            findings.refuse(
                name, "alignment", f"its {info['dtype']} data begins at byte {begin} of {path.name}"
            )
    return tensors


class Model:
    """config.json, hf_quant_config.json or None, and the tensors of all shards by name, or by what
    `official_name` makes of it."""

    def __init__(self, folder, findings, official_name=None):
        self.folder = Path(folder)
        self.config = strict_json(self.folder / "config.json")
        quant = self.folder / "hf_quant_config.json"
        self.hf_quant_config = strict_json(quant) if quant.exists() else None
        self.tensors = {}
        index = self.folder / INDEX
        if index.exists():
            self._read_shards(strict_json(index), findings)
        else:
            self.tensors = read_header(self.folder / SINGLE, findings) or {}
            self._refuse_strays({SINGLE}, findings)
        if official_name is not None:
            self._rename(official_name, findings)

    def _rename(self, official_name, findings):
        stored, self.tensors = self.tensors, {}
        for name, tensor in stored.items():
            tensor.name = official_name(name)
            if tensor.name in self.tensors:
                findings.refuse(name, "name", f"is another spelling of {tensor.name}")
            self.tensors[tensor.name] = tensor

    def _read_shards(self, index, findings):
        by_shard = {}
        for name, shard in index["weight_map"].items():
            if os.path.basename(shard) != shard:
                findings.refuse(name, "index", f"the index leads out of the folder: {shard}")
                continue
            by_shard.setdefault(shard, set()).add(name)
        for shard, listed in sorted(by_shard.items()):
            path = self.folder / shard
            if not path.exists():
                findings.refuse(shard, "index", f"is missing; {len(listed)} tensors are in it")
                continue
            stored = read_header(path, findings)
            if stored is None:
                continue
            for name in sorted(listed - set(stored)):
                findings.refuse(name, "index", f"is in {shard} by the index, and is not")
            for name in sorted(set(stored) - listed):
                where = index["weight_map"].get(name)
                findings.refuse(
                    name,
                    "index",
                    f"{shard} has it, the index " + (f"says {where}" if where else "does not"),
                )
            self.tensors.update({name: stored[name] for name in listed & set(stored)})
        self._refuse_strays(set(by_shard), findings)
        total = sum(tensor.num_bytes for tensor in self.tensors.values())
        claimed = index.get("metadata", {}).get("total_size")
        if claimed != total:
            findings.refuse(
                INDEX, "total-size", f"total_size is {claimed}, the tensors have {total} bytes"
            )

    def _refuse_strays(self, shards, findings):
        for path in sorted(self.folder.iterdir()):
            is_weights = path.name.startswith("model") and path.suffix == ".safetensors"
            if is_weights and path.name not in shards:
                findings.refuse(path.name, "index", "belongs to no shard of the model")
            if path.name == ".dsv4-quantize.json":
                findings.refuse(path.name, "unfinished", "the conversion did not end; --resume it")
