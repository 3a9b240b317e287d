"""Values of E2M1, E4M3, E8M0 and their blocks, decoded and encoded with numpy and ml_dtypes.

All arithmetic is FP32, one operation at a time, rounded to nearest even.
"""

import ml_dtypes
import numpy as np

E2M1_VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
E2M1_VALUES = np.concatenate([E2M1_VALUES, -E2M1_VALUES])  # code 8 is -0
# Code of rint(2 |x|) half steps: 2.5 and 3.5, 4.5 and 5 round a second time.
HALF_STEPS = np.array([0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6, 7, 7], np.uint8)

NVFP4_BLOCK = 16
MXFP4_BLOCK = 32
FP8_TILE = 128

ROUNDINGS = ("nearest_even", "half_step")


def unpack(codes):
    """[rows, n] bytes to [rows, 2 n] codes; the low nibble is the first."""
    out = np.empty((codes.shape[0], codes.shape[1] * 2), np.uint8)
    out[:, 0::2] = codes & 15
    out[:, 1::2] = codes >> 4
    return out


def pack(codes):
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def e4m3_values(codes):
    """uint8 to FP32; 0x7F and 0xFF are NaN."""
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def e8m0_values(codes):
    """uint8 to FP32, 2^(byte - 127); 0xFF is NaN."""
    return codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


def decode_nvfp4(packed, block_scales, global_scale):
    """(e2m1 * e4m3) * global scale: the first product is exact, the second rounds once."""
    values = E2M1_VALUES[unpack(packed)]
    values *= np.repeat(e4m3_values(block_scales), NVFP4_BLOCK, axis=1)
    values *= np.float32(global_scale)
    return values


def decode_mxfp4(packed, block_scales):
    values = E2M1_VALUES[unpack(packed)]
    values *= np.repeat(e8m0_values(block_scales), MXFP4_BLOCK, axis=1)
    return values


def decode_fp8(codes, tile_scales, first_row):
    """Rows from `first_row` on; `tile_scales` are FP32, of the whole matrix."""
    values = e4m3_values(codes)
    tile_rows = (first_row + np.arange(codes.shape[0])) // FP8_TILE
    values *= np.repeat(tile_scales[tile_rows], FP8_TILE, axis=1)[:, : codes.shape[1]]
    return values


def encode_e2m1(values, rounding):
    """FP32 to codes by one of ROUNDINGS; -0 and what rounds to it keep the sign."""
    if rounding == "nearest_even":
        clamped = np.clip(values, np.float32(-6), np.float32(6))
        return clamped.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
    assert rounding in ROUNDINGS, rounding
    steps = np.rint(np.minimum(np.abs(values), np.float32(6)) * np.float32(2)).astype(np.int64)
    return HALF_STEPS[steps] | np.signbit(values).astype(np.uint8) << 3


def encode_e4m3(values):
    """FP32 >= 0 to codes, limited to 448."""
    limited = np.minimum(values, np.float32(448))
    return limited.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def global_scale_of(amax, largest_block_scale=448):
    """amax / (6 * largest block scale); 1 for an amax of 0 or so small that this would be 0."""
    scale = np.float32(amax) / np.float32(6 * largest_block_scale)
    return scale if scale > 0 else np.float32(1)


def encode_blocks(values, block_scales, global_scale, rounding):
    """Codes, unpacked, of [rows, cols] under given block scales."""
    divisors = e4m3_values(block_scales) * global_scale
    divisors = np.repeat(divisors, NVFP4_BLOCK, axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        codes = encode_e2m1(np.where(divisors > 0, values / divisors, np.float32(0)), rounding)
    return np.where(divisors > 0, codes, np.uint8(0))


def encode_nvfp4(values, global_scale, rounding, four_over_six=False):
    """(packed codes, block scales) of FP32 [rows, cols].

    Four over six: each block takes the better of two scales, by the sum of squared errors in FP64;
    equal errors leave the largest value at 6.
    """
    global_scale = np.float32(global_scale)
    blocks = values.reshape(values.shape[0], -1, NVFP4_BLOCK)
    with np.errstate(over="ignore"):
        wanted = np.abs(blocks).max(axis=2, initial=0) / (np.float32(6) * global_scale)
    scales = encode_e4m3(wanted)
    codes = encode_blocks(values, scales, global_scale, rounding)
    if four_over_six:
        to_four = encode_e4m3(np.float32(1.5) * wanted)
        other = encode_blocks(values, to_four, global_scale, rounding)
        better = block_errors(values, other, to_four, global_scale) < block_errors(
            values, codes, scales, global_scale
        )
        scales = np.where(better, to_four, scales)
        codes = np.where(np.repeat(better, NVFP4_BLOCK, axis=1), other, codes)
    return pack(codes), scales


def block_errors(values, codes, block_scales, global_scale):
    """The sum of (x - decoded)^2 of each block, in FP64, as a halving tree."""
    decoded = decode_nvfp4(pack(codes), block_scales, global_scale)
    squares = (values.astype(np.float64) - decoded.astype(np.float64)) ** 2
    squares = squares.reshape(values.shape[0], -1, NVFP4_BLOCK)
    while squares.shape[2] > 1:
        half = squares.shape[2] // 2
        squares = squares[:, :, :half] + squares[:, :, half:]
    return squares[:, :, 0]
