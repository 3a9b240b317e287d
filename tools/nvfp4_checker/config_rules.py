"""The rules for config.json and hf_quant_config.json: what they say of the formats must be what the
tensors are, module by module. What the tensors are is found by tensor_rules.py.

ModelOpt's schemas: NVIDIA's releases of DeepSeek-V4, the newer with modules in quantized_layers,
the older with one key a matrix. compressed-tensors: its quant_config.py and quant_scheme.py.
"""

import fnmatch
import re

CONFIG, HF_CONFIG = "config.json", "hf_quant_config.json"
NVFP4_WEIGHTS = {"num_bits": 4, "type": "float", "group_size": 16}


class ConfigRules:
    def __init__(self, model, matrices, layout, findings):
        self.model, self.layout, self.findings = model, layout, findings
        self.nvfp4 = {name for name, m in matrices.items() if m.form == "NVFP4"}
        self.others = {name: m.form for name, m in matrices.items() if m.form != "NVFP4"}
        self.with_input_scale = {n for n, m in matrices.items() if m.input_scale is not None}

    def run(self):
        config = self.model.config
        self._check_expert_count(config["n_routed_experts"])
        claimed = config.get("expert_dtype")
        experts = [n for n in self.nvfp4 if re.match(r"layers\.\d+\.ffn\.experts\.", n)]
        if claimed == "fp8" and experts:
            self._refuse(CONFIG, f"expert_dtype is fp8, {experts[0]} is NVFP4")
        quantization = config.get("quantization_config")
        if not isinstance(quantization, dict):
            self._refuse(CONFIG, "has no quantization_config")
        elif self.layout == "modelopt":
            self._check_modelopt(quantization)
        else:
            self._check_compressed_tensors(quantization)

    def _refuse(self, where, message):
        self.findings.refuse(where, "config", message)

    def _expect(self, where, key, value, wanted):
        if value not in wanted:
            self._refuse(where, f"{key} is {value!r}, not " + " or ".join(map(repr, wanted)))

    def _check_expert_count(self, claimed):
        """Engines size every layer by it. The draft block of a pruned model may have more."""
        routers = [
            tensor
            for name, tensor in self.model.tensors.items()
            if re.fullmatch(r"layers\.\d+\.ffn\.gate\.weight", name)
        ]
        counts = [router.shape[0] for router in routers if router.shape]
        if counts and max(counts) != claimed:
            self._refuse(CONFIG, f"n_routed_experts is {claimed}, a layer has {max(counts)}")
        elif counts and min(counts) != claimed:
            self.findings.note(
                f"layers have {min(counts)} to {claimed} experts: not for engines that take "
                "n_routed_experts for all of them"
            )

    # ---- ModelOpt

    def _check_modelopt(self, config):
        if any(form == "FP8" for form in self.others.values()):
            self._expect(CONFIG, "quant_method", config.get("quant_method"), ["fp8"])
            self._expect(CONFIG, "weight_block_size", config.get("weight_block_size"), [[128, 128]])
        else:
            self._expect(CONFIG, "quant_method", config.get("quant_method"), ["fp8", "modelopt"])
        self._check_modelopt_object(CONFIG, config, config.get("ignore"))
        file = self.model.hf_quant_config
        if file is None:
            self._refuse(HF_CONFIG, "is missing; NVIDIA's releases have it")
            return
        quantization = file.get("quantization")
        if not isinstance(quantization, dict):
            self._refuse(HF_CONFIG, 'has no "quantization"')
            return
        excluded = quantization.get("exclude_modules", quantization.get("ignore"))
        self._check_modelopt_object(HF_CONFIG, quantization, excluded)
        if "ignore" in config and config["ignore"] != excluded:
            self._refuse(HF_CONFIG, "exclude_modules differs from ignore in config.json")
        for key in sorted(set(config) & set(quantization) - {"ignore"}):
            if config[key] != quantization[key]:
                self._refuse(HF_CONFIG, f"{key} differs from the one in config.json")

    def _check_modelopt_object(self, where, quantization, excluded):
        algorithm = quantization.get("quant_algo")
        self._expect(where, "quant_algo", algorithm, ["MIXED_PRECISION", "NVFP4", None])
        layers = quantization.get("quantized_layers")
        if layers is None and algorithm != "NVFP4":
            self._expect(where, "moe_quant_algo", quantization.get("moe_quant_algo"), ["NVFP4"])
        group = quantization.get("group_size", quantization.get("awq_block_size"))
        if layers is None or group is not None:
            self._expect(where, "group_size", group, [16])
        if not isinstance(excluded, list):
            self._refuse(
                where, "has no list of the modules that are not NVFP4 (ignore, " "exclude_modules)"
            )
            excluded = []
        for name in sorted(self.nvfp4):
            pattern = next((p for p in excluded if fnmatch.fnmatchcase(name, p)), None)
            if pattern:
                self._refuse(name, f"is NVFP4, and {where} excludes {pattern}")
        if layers is not None:
            self._check_quantized_layers(where, layers)
        for key, scheme in (quantization.get("config_groups") or {}).items():
            self._check_scheme(f"{where}: config_groups.{key}", scheme, [self._is_dynamic()])

    def _is_dynamic(self):
        """Whether some routed expert has no input scale; without experts, some matrix."""
        experts = {name for name in self.nvfp4 if ".ffn.experts." in name}
        return not (experts or self.nvfp4) <= self.with_input_scale

    def _check_quantized_layers(self, where, layers):
        """Names of modules (layers.0.ffn.experts) or of matrices: exactly what is NVFP4."""
        listed = set()
        for module, claim in layers.items():
            if not isinstance(claim, dict):
                self._refuse(where, f"quantized_layers.{module} is no object")
                continue
            self._expect(f"{where}: {module}", "quant_algo", claim.get("quant_algo"), ["NVFP4"])
            group = claim.get("group_size", claim.get("awq_block_size"))
            self._expect(f"{where}: {module}", "group_size", group, [16])
            listed.add(module)
        unused = set(listed)
        for name in sorted(self.nvfp4):
            above = _modules_of(name) & listed
            unused -= above
            if not above:
                self._refuse(name, f"is NVFP4, and quantized_layers of {where} does not list it")
        for module in sorted(unused):
            self._refuse(
                f"{where}: {module}", "is in quantized_layers, and no such matrix is NVFP4"
            )
        for name in sorted(self.others):
            above = _modules_of(name) & listed
            if above:
                self._refuse(
                    name, f"is {self.others[name]}, and {where} lists {min(above)} as NVFP4"
                )

    # ---- compressed-tensors

    def _check_compressed_tensors(self, config):
        self._expect(CONFIG, "quant_method", config.get("quant_method"), ["compressed-tensors"])
        formats = ["nvfp4-pack-quantized", "mixed-precision"]
        self._expect(CONFIG, "format", config.get("format"), formats)
        self._expect(
            CONFIG, "quantization_status", config.get("quantization_status"), ["compressed"]
        )
        groups = config.get("config_groups")
        if not isinstance(groups, dict) or not groups:
            self._refuse(CONFIG, "has no config_groups")
            return
        ignored = config.get("ignore") or []
        for pattern in ignored + [t for g in groups.values() for t in g.get("targets", [])]:
            if "*" in pattern and not pattern.startswith("re:"):
                self._refuse(CONFIG, f"{pattern}: compressed-tensors knows names and re:, no stars")
        members = {key: [] for key in groups}
        for name in sorted(self.nvfp4):
            key = _group_of(name, groups, ignored)
            if key is None or not _is_nvfp4(groups[key]):
                self._refuse(name, "is NVFP4, and config_groups do not say so of it")
            else:
                members[key].append(name)
        for key, group in groups.items():
            if _is_nvfp4(group):
                self._check_nvfp4_group(f"{CONFIG}: config_groups.{key}", group, members[key])
        for name, form in sorted(self.others.items()):
            key = _group_of(name, groups, ignored)
            if key is None and form == "FP8":
                self._refuse(name, "is FP8, and in no config_groups: engines would take it for BF16")
            elif key is not None and (form != "FP8" or not _is_fp8_tiles(groups[key])):
                self._refuse(name, f"is {form}, and config_groups.{key} claims another format")

    def _check_nvfp4_group(self, where, group, names):
        """A group has input scales for all of its matrices and says so, or for none."""
        lacking = [name for name in names if name not in self.with_input_scale]
        has_input_scales = len(lacking) < len(names)
        if lacking and has_input_scales:
            self._refuse(lacking[0], f"has no input scale, others of {where} have one")
        weights = group["weights"]
        self._expect(where, "weights.strategy", weights.get("strategy"), ["tensor_group"])
        self._expect(where, "weights.symmetric", weights.get("symmetric", True), [True])
        self._check_scheme(where, group, [False, "local"] if has_input_scales else [True, None])

    # ---- both

    def _check_scheme(self, where, scheme, dynamic_inputs):
        """`dynamic_inputs`: what input_activations.dynamic may be; None: not quantised."""
        weights = scheme.get("weights") or {}
        for key, value in NVFP4_WEIGHTS.items():
            self._expect(where, f"weights.{key}", weights.get(key), [value])
        self._expect(where, "weights.dynamic", weights.get("dynamic", False), [False])
        inputs = scheme.get("input_activations")
        dynamic = inputs.get("dynamic", False) if inputs else None
        self._expect(where, "input_activations.dynamic", dynamic, dynamic_inputs)
        for key, value in NVFP4_WEIGHTS.items():
            if inputs:
                self._expect(where, f"input_activations.{key}", inputs.get(key), [value])


def _modules_of(name):
    """The matrix and all that holds it: layers.0.ffn.experts.1.w1, layers.0.ffn.experts.1, ..."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts) + 1)}


def _matches(name, pattern):
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    return pattern == name


def _group_of(name, groups, ignored):
    """The key of a linear's group: names and expressions go before the class, as in vLLM."""
    if any(_matches(name, pattern) for pattern in ignored):
        return None
    for key, group in groups.items():
        if any(_matches(name, target) for target in group.get("targets", [])):
            return key
    return next((key for key, g in groups.items() if "Linear" in g.get("targets", [])), None)


def _is_nvfp4(group):
    weights = group.get("weights") or {}
    return weights.get("num_bits") == 4


def _is_fp8_tiles(group):
    weights = group.get("weights") or {}
    return (weights.get("num_bits"), weights.get("type"), weights.get("block_structure")) == (
        8,
        "float",
        [128, 128],
    )
