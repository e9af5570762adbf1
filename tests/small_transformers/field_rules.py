"""Recognise what a field of a config holds by its name: a width, a number of heads, a token id and so on."""

from __future__ import annotations

import re

# The first pattern that matches decides; a field that matches none keeps its default.
RULES: tuple[tuple[str, str], ...] = (
    (
        "keep",
        r"^(num_channels|audio_channels|in_channels|in_chans|channels|number_output_channels|output_num_channels"
        r"|num_mel_bins|n_mel_bins|num_register_tokens|chunk_size_feed_forward|window_size_per_stage|pool_size"
        r"|sampling_rate|.*kernel_size|.*_stride|.*_scales?|query_dim|codebook_size|num_labels|_label_trainable.*"
        r"|backbone_feature_sizes|.*pad_dim|conv1d_width|patch_size|.*dilation.*|num_pooler_layers|hidden_act"
        r"|num_quantizers|n_quantizers|type_vocab_sizes?|.*_feat_sizes|num_nextn_predict_layers|num_feature_levels"
        r"|encoder_stride|depth_separable_channels|iou_head_depth|num_codebooks|.*num_residual_layers|mlp_ratio.*"
        r"|num_kv_shared_layers|encode_proj_layers|visual_pos_dim|state_dim|act_dim|max_depth|.*num_feedforward_networks"
        r"|number_of_conv_states|num_feat_extract_layers|num_adapter_layers|rotary_embedding_base|conv_layer_.*"
        r"|speech_decoder_.*_layers|num_conv_layers|num_lstm_layers|num_dense_layers|max_state_dim|max_action_dim"
        r"|input_feat_per_channel|.*codevector_groups|.*frequency|lags_sequence|feature_size|input_size|prediction_length"
        r"|embedding_dimension|cardinality|context_length|linear_conv_kernel_dim|conv_kernel_dim|spectrogram_bins"
        r"|audio_prompt_dim|rank_dim)$",
    ),
    ("token", r"(token_ids?|token_index|token_idx|_id|_token|tokens_id|vocab_offset|_ids)$"),
    ("vocabulary", r"(^|_)vocab(_size)?(_per_layer_input)?$|^num_embeds$|^codebook_vocab_size$|^entity_vocab_size$"),
    ("positions", r"(max_.*position_embeddings|n_positions|n_ctx|max_(source|target)_positions|seq_len|max_seq_len.*"
                  r"|max_speech_positions|max_text_positions|context_window|model_max_length|num_position_embeddings)$"),
    ("few", r"^(num_conv_pos_embedding_groups|num_groups)$"),
    ("group", r"^(n_group|num_expert_group)$"),
    ("top_k", r"(num_experts_per_tok(en)?|topk_group|moe_top_?k|top_k_experts|moe_k)$"),
    ("experts", r"^(n_routed_experts|num_experts|num_local_experts|moe_num_experts|.*zero_expert_num)$"),
    ("window", r"^(sliding_window(_size)?|local_attention|attention_window(_size)?|attention_chunk_size)$"),
    ("head_width", r"(head_dim|^d_kv|^d_head|^attention_head_size|^rotary_dim|^dim_head|resampler_dim_head|qk_head_dim"
                   r"|mamba_d_head|mamba_headdim|global_pointer_head_size|query_pre_attn_scalar)$"),
    ("heads", r"(^|_)(heads?(_per_stage|_per_layer)?|n_heads?|num_key_value_heads|num_query_groups|num_kv_heads)$"),
    ("layers", r"^(num_hidden_layers|num_layers|n_layers?|depth|.*encoder_layers|.*decoder_layers|l_layers|x_layers"
               r"|r_layers|.*num_hidden_layers|.*_num_layers|num_layers_per_stack|num_blocks|num_attention_layers"
               r"|resampler_depth)$"),
    ("depths", r"^(depths|blocks_per_stage|stage_num_blocks|stage_numb_of_layers|block_sizes)$"),
    ("images", r"^(image_size|img_size|pretrain_image_size|max_img_size|train_size|spec_size|resolution)$"),
    ("queries", r"^(num_queries|num_query_tokens|num_detection_tokens|two_stage_num_proposals|num_latents"
                r"|.*_num_latents|num_parallel_samples|num_denoising|decoder_num_queries)$"),
    ("inner_width", r"(intermediate_(size|dim)|ffn_dim|d_ff|dff|dim_ff|mlp_dim|dim_feedforward|ffn_hidden_size|n_inner"
                    r"|mlp_hidden_size|feed_forward_size|prompt_mid_dim)$"),
    ("width", r"(hidden_sizes?(_per_layer_input)?|(^|_)dims?|embed_dim_per_stage|d_model|n_embd|embed(ding)?_size|embd"
              r"|.*channels?(_list)?|filters|_width|units|lora_rank|embd_pdim|_rank|features|feature_dims|conv_dim"
              r"|d_latents|classifier_proj_size|output_size|emb_size|bottleneck_size|proj_dims|d_state|d_ssm|state_size"
              r"|attn_unit_dims|input_dim|axial_pos_embds_dim|coordinate_size|shape_size|flow_size|latent_size"
              r"|hidden_dimension|num_pos_feats|upsample_groups|divisor_width)$"),
)  # fmt: skip
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in RULES)


def classify_field(name: str) -> str:
    """Return the kind of a config field, such as "width"; "keep" where its default stays.

    Args:
        name: The name of the field.
    """
    for kind, pattern in _PATTERNS:
        if pattern.search(name):
            return kind
    return "keep"
