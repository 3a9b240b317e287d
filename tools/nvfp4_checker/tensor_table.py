"""Every tensor of a DeepSeek-V4 checkpoint: name, kind and shape, from config.json alone.

How a matrix is stored is left to tensor_rules.py.
"""

from collections import namedtuple

from nvfp4_checker.spellings import compress_ratios, num_hash_layers

# kind: linear (any matrix format), plain (BF16 or F32), f32, i64. A linear's name lacks ".weight".
Expected = namedtuple("Expected", "name kind shape")


def is_dspark(config, names):
    return any(key.startswith("dspark_") for key in config) or any(
        name.startswith("mtp.0.main_proj.") for name in names
    )


def _hyper_connection(prefix, config):
    copies, hidden = config["hc_mult"], config["hidden_size"]
    mixes = (2 + copies) * copies
    for which in ("hc_attn", "hc_ffn"):
        yield Expected(f"{prefix}{which}_fn", "f32", (mixes, copies * hidden))
        yield Expected(f"{prefix}{which}_base", "f32", (mixes,))
        yield Expected(f"{prefix}{which}_scale", "f32", (3,))


def _hyper_connection_head(prefix, config):
    copies = config["hc_mult"]
    yield Expected(f"{prefix}hc_head_fn", "f32", (copies, copies * config["hidden_size"]))
    yield Expected(f"{prefix}hc_head_base", "f32", (copies,))
    yield Expected(f"{prefix}hc_head_scale", "f32", (1,))


def _compressor(prefix, config, ratio, row):
    width = row * (2 if ratio == 4 else 1)  # CSA rows overlap
    yield Expected(f"{prefix}ape", "f32", (ratio, width))
    yield Expected(f"{prefix}wkv", "linear", (width, config["hidden_size"]))
    yield Expected(f"{prefix}wgate", "linear", (width, config["hidden_size"]))
    yield Expected(f"{prefix}norm.weight", "plain", (row,))


def _attention(prefix, config, ratio):
    hidden, head, low = config["hidden_size"], config["head_dim"], config["q_lora_rank"]
    heads, groups = config["num_attention_heads"], config["o_groups"]
    out = groups * config["o_lora_rank"]
    yield Expected(f"{prefix}wq_a", "linear", (low, hidden))
    yield Expected(f"{prefix}q_norm.weight", "plain", (low,))
    yield Expected(f"{prefix}wq_b", "linear", (heads * head, low))
    yield Expected(f"{prefix}wkv", "linear", (head, hidden))
    yield Expected(f"{prefix}kv_norm.weight", "plain", (head,))
    yield Expected(f"{prefix}attn_sink", "f32", (heads,))
    yield Expected(f"{prefix}wo_a", "linear", (out, heads * head // groups))
    yield Expected(f"{prefix}wo_b", "linear", (hidden, out))
    if ratio:
        yield from _compressor(f"{prefix}compressor.", config, ratio, head)
    if ratio == 4:
        index_heads, index_head = config["index_n_heads"], config["index_head_dim"]
        yield Expected(f"{prefix}indexer.wq_b", "linear", (index_heads * index_head, low))
        yield Expected(f"{prefix}indexer.weights_proj", "linear", (index_heads, hidden))
        yield from _compressor(f"{prefix}indexer.compressor.", config, ratio, index_head)


def _ffn(prefix, config, num_experts, by_hash):
    hidden, inter = config["hidden_size"], config["moe_intermediate_size"]
    yield Expected(f"{prefix}gate.weight", "plain", (num_experts, hidden))
    if by_hash:
        shape = (config["vocab_size"], config["num_experts_per_tok"])
        yield Expected(f"{prefix}gate.tid2eid", "i64", shape)
    else:
        yield Expected(f"{prefix}gate.bias", "f32", (num_experts,))
    shared = inter * config["n_shared_experts"]
    blocks = [(f"experts.{e}", inter) for e in range(num_experts)] + [("shared_experts", shared)]
    for block, width in blocks:
        yield Expected(f"{prefix}{block}.w1", "linear", (width, hidden))
        yield Expected(f"{prefix}{block}.w3", "linear", (width, hidden))
        yield Expected(f"{prefix}{block}.w2", "linear", (hidden, width))


def _block(prefix, config, ratio, num_experts, by_hash):
    yield Expected(f"{prefix}attn_norm.weight", "plain", (config["hidden_size"],))
    yield Expected(f"{prefix}ffn_norm.weight", "plain", (config["hidden_size"],))
    yield from _hyper_connection(prefix, config)
    yield from _attention(f"{prefix}attn.", config, ratio)
    yield from _ffn(f"{prefix}ffn.", config, num_experts, by_hash)


def _draft_block(prefix, config, num_experts):
    hidden = config["hidden_size"]
    yield from _block(prefix, config, 0, num_experts, by_hash=False)
    yield from _hyper_connection_head(prefix, config)
    for name in ("e_proj", "h_proj"):
        yield Expected(f"{prefix}{name}", "linear", (hidden, hidden))
    for name in ("enorm", "hnorm", "norm"):
        yield Expected(f"{prefix}{name}.weight", "plain", (hidden,))


def expected_tensors(config, tensors):
    """The trunk, and the draft block where one is stored. A layer has as many experts as its router
    has rows: pruned models differ from config.json."""

    def experts_of(prefix):
        router = tensors.get(f"{prefix}ffn.gate.weight")
        rows = router is not None and len(router.shape) == 2
        return router.shape[0] if rows else config["n_routed_experts"]

    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield Expected("embed.weight", "plain", (vocabulary, hidden))
    yield Expected("head", "linear", (vocabulary, hidden))
    yield Expected("norm.weight", "plain", (hidden,))
    yield from _hyper_connection_head("", config)
    ratios, num_by_hash = compress_ratios(config), num_hash_layers(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"layers.{layer}."
        by_hash = layer < num_by_hash
        yield from _block(prefix, config, ratios[layer], experts_of(prefix), by_hash)
    if any(name.startswith("mtp.") for name in tensors) and not is_dspark(config, tensors):
        yield from _draft_block("mtp.0.", config, experts_of("mtp.0."))
