"""Checkpoints in memory that the checker's tests damage, and how they judge what it says of
them. The models are cast from the golden model flash-official with none of the checker's code.
"""

import copy
import json
import re
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

import check_nvfp4

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "data" / "golden"
SIZES = {"F32": 4, "BF16": 2, "I64": 8, "I32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1}
EXPERT = "layers.1.ffn.experts.2.w1"


class Checkpoint:
    """A model in memory: tensors {name: [dtype, shape, bytes]} in the file's order, and JSON."""

    def __init__(self, folder):
        data = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        self.tensors = {}
        for name, info in header.items():
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            self.tensors[name] = [info["dtype"], info["shape"], data[begin:end]]
        self.config = json.loads((folder / "config.json").read_text())
        self.files = {}  # other JSON files

    def array(self, name, dtype=np.uint8):
        return np.frombuffer(self.tensors[name][2], dtype).reshape(self.tensors[name][1])

    def put(self, name, dtype, array):
        self.tensors[name] = [dtype, list(np.shape(array)), np.ascontiguousarray(array).tobytes()]

    def rename(self, old, new):
        self.tensors = {new if name == old else name: t for name, t in self.tensors.items()}

    def scalar(self, name, value, shape=()):
        self.put(name, "F32", np.full(shape, value, np.float32))

    def set_byte(self, name, index, value):
        data = bytearray(self.tensors[name][2])
        data[index] = value
        self.tensors[name][2] = bytes(data)

    def names(self, ending):
        return [name for name in self.tensors if name.endswith(ending)]

    @staticmethod
    def write_file(path, tensors):
        # As safetensors does: the widest dtypes first, so that nothing is misaligned.
        header, payload = {}, b""
        for name, (dtype, shape, data) in sorted(tensors.items(), key=lambda t: -SIZES[t[1][0]]):
            offsets = [len(payload), len(payload) + len(data)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            payload += data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + payload)

    def write(self, folder, num_shards=1):
        folder.mkdir()
        if num_shards == 1:
            self.write_file(folder / "model.safetensors", self.tensors)
        else:
            weight_map, total = {}, 0
            for i in range(num_shards):
                shard = f"model-{i + 1:05}-of-{num_shards:05}.safetensors"
                part = {n: self.tensors[n] for n in list(self.tensors)[i::num_shards]}
                self.write_file(folder / shard, part)
                weight_map.update({name: shard for name in part})
                total += sum(len(tensor[2]) for tensor in part.values())
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for name, content in {"config.json": self.config, **self.files}.items():
            (folder / name).write_text(json.dumps(content))
        return folder


def power_of_two(exponents):
    """E4M3 bytes of 2^-9 .. 2^8."""
    return np.where(exponents >= -6, (exponents + 7) << 3, 1 << (exponents + 9)).astype(np.uint8)


def cast_to_nvfp4(model, matrices):
    """MXFP4 to ModelOpt's NVFP4, as NVIDIA's script casts: codes unchanged, powers of two."""
    exponents = {m: model.array(m + ".scale").astype(int) - 127 for m in matrices}
    for matrix in matrices:
        other = matrix[:-1] + {"1": "3", "3": "1", "2": "2"}[matrix[-1]]
        largest = max(exponents[matrix].max(), exponents[other].max()) - 8
        model.tensors[matrix + ".weight"][0] = "U8"
        scales = power_of_two(np.repeat(exponents[matrix] - largest, 2, axis=1))
        model.put(matrix + ".weight_scale", "F8_E4M3", scales)
        model.scalar(matrix + ".weight_scale_2", 2.0**largest)
        model.scalar(matrix + ".input_scale", 0.003 if matrix[-1] == "2" else 0.001)
        del model.tensors[matrix + ".scale"]


def experts_of(model, layers):
    return [
        name[: -len(".scale")]
        for name in model.names(".scale")
        if ".ffn.experts." in name and name.startswith(layers)
    ]


def set_modelopt_config(model):
    four_bits = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}
    modules = {
        f"layers.{i}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}
        for i in range(model.config["num_hidden_layers"])
    }
    quantization = {
        "moe_quant_algo": "NVFP4",
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "config_groups": {
            "group_0": {
                "weights": four_bits,
                "input_activations": dict(four_bits),
                "targets": ["Linear"],
            }
        },
        "quantized_layers": modules,
    }
    excluded = ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"]
    producer = {"name": "modelopt", "version": "dsv4-nvfp4-experts"}
    model.config["quantization_config"] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
        **quantization,
        "ignore": excluded,
        "producer": producer,
    }
    model.files["hf_quant_config.json"] = copy.deepcopy(
        {"producer": producer, "quantization": {**quantization, "exclude_modules": excluded}}
    )


def to_compressed_tensors(model, with_inputs=True):
    for name in model.names(".weight_scale_2"):
        matrix = name[: -len(".weight_scale_2")]
        model.rename(matrix + ".weight", matrix + ".weight_packed")
        for old, new in (
            ("weight_scale_2", "weight_global_scale"),
            ("input_scale", "input_global_scale"),
        ):
            value = np.float32(1) / model.array(f"{matrix}.{old}", np.float32)
            del model.tensors[f"{matrix}.{old}"]
            if with_inputs or old != "input_scale":
                model.scalar(f"{matrix}.{new}", value, (1,))
    four_bits = {
        "num_bits": 4,
        "type": "float",
        "group_size": 16,
        "strategy": "tensor_group",
        "symmetric": True,
    }
    group = {
        "targets": [r"re:layers\.\d+\.ffn\.experts\..*"],
        "weights": {**four_bits, "dynamic": False},
        "input_activations": {**four_bits, "dynamic": "local"} if with_inputs else None,
    }
    tiles = {
        "targets": [r"re:.*\.attn\.(indexer\.)?w.*", "re:.*shared_experts.*", r"re:mtp\..*_proj"],
        "weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]},
    }
    model.files = {}
    model.config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group, "group_1": tiles},
        "ignore": [r"re:.*\.weights_proj", r"re:.*\.compressor\..*", r"re:mtp\..*experts\.\d.*", "head"],
    }


def prune_layer(model, layer, keep):
    """Its first `keep` experts, as pruning leaves a layer with a learned router."""
    prefix = f"layers.{layer}.ffn."
    model.put(prefix + "gate.weight", "BF16", model.array(prefix + "gate.weight", np.uint16)[:keep])
    model.put(prefix + "gate.bias", "F32", model.array(prefix + "gate.bias", np.float32)[:keep])
    for name in list(model.tensors):
        expert = re.match(re.escape(prefix) + r"experts\.(\d+)\.", name)
        if expert and int(expert[1]) >= keep:
            del model.tensors[name]


def transformers_name(name):
    """As save_pretrained calls it."""
    for pattern, replacement in (
        (r"^embed\.", "embed_tokens."),
        (r"^hc_head_", "hc_head.hc_"),
        (r"\.attn\.", ".self_attn."),
        (r"\.ffn\.", ".mlp."),
        (r"\.attn_norm\.", ".input_layernorm."),
        (r"\.ffn_norm\.", ".post_attention_layernorm."),
        (r"\.hc_(attn|ffn)_", r".\1_hc."),
        (r"\.attn_sink$", ".sinks"),
        (r"\.indexer\.compressor\.", ".compressor.indexer."),
        (r"\.indexer\.weights_proj\.", ".compressor.indexer.scorer.weights_proj."),
        (r"\.indexer\.wq_b\.", ".compressor.indexer.q_b_proj."),
        (r"\.(compressor|indexer)\.norm\.", r".\1.kv_norm."),
        (r"\.ape$", ".position_bias"),
        (r"\.wq_([ab])\.", r".q_\1_proj."),
        (r"\.wkv\.", ".kv_proj."),
        (r"\.wgate\.", ".gate_proj."),
        (r"\.wo_([ab])\.", r".o_\1_proj."),
        (r"\.q_norm\.", ".q_a_norm."),
        (r"\.gate\.bias$", ".gate.e_score_correction_bias"),
        (r"(experts(?:\.\d+)?)\.w1\.", r"\1.gate_proj."),
        (r"(experts(?:\.\d+)?)\.w2\.", r"\1.down_proj."),
        (r"(experts(?:\.\d+)?)\.w3\.", r"\1.up_proj."),
    ):
        name = re.sub(pattern, replacement, name)
    return "lm_head." + name[len("head.") :] if name.startswith("head.") else "model." + name


def to_transformers(model):
    """Names and config of a model that transformers saved."""
    model.tensors = {transformers_name(name): tensor for name, tensor in model.tensors.items()}
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention"}
    config, num_layers = model.config, model.config["num_hidden_layers"]
    ratios, by_hash = config.pop("compress_ratios"), config.pop("num_hash_layers")
    config["layer_types"] = [
        kinds.get(ratio, "heavily_compressed_attention") for ratio in ratios[:num_layers]
    ]
    config["mlp_layer_types"] = ["hash_moe"] * by_hash + ["moe"] * (num_layers - by_hash)
    config["compress_rates"] = {
        "compressed_sparse_attention": 4,
        "heavily_compressed_attention": 128,
    }


class CheckerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.official = Checkpoint(GOLDEN / "flash-official")
        cls.good = Checkpoint(GOLDEN / "flash-official")
        cast_to_nvfp4(cls.good, experts_of(cls.good, "layers."))
        set_modelopt_config(cls.good)

    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = Path(temp.name)
        self.model = copy.deepcopy(self.good)
        self.quantization = self.model.config["quantization_config"]

    def check(self, model=None, source=None, layout="auto", num_shards=1):
        """(refusals, comparison or None) of a model in memory or a folder."""
        model = self.model if model is None else model
        number = len(list(self.root.iterdir()))
        if isinstance(model, Checkpoint):
            model = model.write(self.root / f"model{number}", num_shards)
        if isinstance(source, Checkpoint):
            source = source.write(self.root / f"source{number}")
        findings, _, comparison = check_nvfp4.check(model, source, layout)
        return findings.refusals, comparison

    def expect_accepted(self, model=None, **kwargs):
        refusals, comparison = self.check(model, **kwargs)
        self.assertEqual(refusals, [])
        return comparison

    def expect_refused(self, where, rule, *parts, model=None, **kwargs):
        """One refusal at least; among them one of `where` by `rule` whose message holds `parts`."""
        refusals, _ = self.check(model, **kwargs)
        messages = [m for w, r, m in refusals if w == where and r == rule]
        self.assertTrue(messages, refusals)
        for part in parts:
            self.assertTrue(any(part in message for message in messages), messages)
