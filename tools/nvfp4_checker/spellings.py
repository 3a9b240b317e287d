"""What a source may call its tensors and its layers: Hugging Face transformers' names and config
keys, as DeepSeek's own. A quantised model has DeepSeek's names only.

Written from transformers' conversion_mapping.py and configuration_deepseek_v4.py.
"""

import re

# In this order; all that fit apply. The indexer hangs below the compressor in transformers, and has
# a compressor below itself in DeepSeek's names.
_RULES = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^model\.", ""),
        (r"^embed_tokens\.", "embed."),
        (r"^lm_head\.", "head."),
        (r"\bhc_head\.hc_(fn|base|scale)$", r"hc_head_\1"),
        (r"\.input_layernorm\.", ".attn_norm."),
        (r"\.post_attention_layernorm\.", ".ffn_norm."),
        (r"\.(attn|ffn)_hc\.(fn|base|scale)$", r".hc_\1_\2"),
        (r"\.self_attn\.", ".attn."),
        (r"\.mlp\.", ".ffn."),
        (r"\.compressor\.indexer\.(scorer\.)?weights_proj\.", ".indexer.weights_proj."),
        (r"\.(compressor\.)?indexer\.(q_b_proj|wq_b)\.", ".indexer.wq_b."),
        (r"\.compressor\.indexer\.", ".indexer.compressor."),
        (r"\.compressor\.kv_proj\.", ".compressor.wkv."),
        (r"\.compressor\.gate_proj\.", ".compressor.wgate."),
        (r"\.compressor\.kv_norm\.", ".compressor.norm."),
        (r"\.compressor\.position_bias$", ".compressor.ape"),
        (r"\.attn\.q_a_proj\.", ".attn.wq_a."),
        (r"\.attn\.q_a_(layer)?norm\.", ".attn.q_norm."),
        (r"\.attn\.q_b_proj\.", ".attn.wq_b."),
        (r"\.attn\.kv_proj\.", ".attn.wkv."),
        (r"\.attn\.kv_a_layernorm\.", ".attn.kv_norm."),
        (r"\.attn\.o_([ab])_proj\.", r".attn.wo_\1."),
        (r"\.attn\.sinks$", ".attn.attn_sink"),
        (r"\.gate\.e_score_correction_bias$", ".gate.bias"),
        (r"experts(\.\d+)?\.gate_proj\.", r"experts\1.w1."),
        (r"experts(\.\d+)?\.up_proj\.", r"experts\1.w3."),
        (r"experts(\.\d+)?\.down_proj\.", r"experts\1.w2."),
        (r"\.weight_scale_inv$", ".scale"),
    )
]

_OLDER_RATES = {
    "compressed_sparse_attention": ("compress_rate_csa", 4),
    "heavily_compressed_attention": ("compress_rate_hca", 128),
}


def official_name(name):
    for pattern, replacement in _RULES:
        name = pattern.sub(replacement, name)
    return name


def compress_ratios(config):
    """One a layer: 4 or 128 tokens a compressed row, 0 without a compressor."""
    if "compress_ratios" in config:
        return config["compress_ratios"]
    rates = config.get("compress_rates", {})
    of_kind = {"sliding_attention": 0}
    for kind, (older_key, default) in _OLDER_RATES.items():
        of_kind[kind] = rates.get(kind, config.get(older_key, default))
    return [of_kind[kind] for kind in config["layer_types"]]


def num_hash_layers(config):
    if "num_hash_layers" in config:
        return config["num_hash_layers"]
    return config["mlp_layer_types"].count("hash_moe")
