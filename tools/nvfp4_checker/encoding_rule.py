"""The bytes that dsv4's documented rules give for matrices of a source (docs/quantization.md).

The arithmetic of single values is in codecs.py.
"""

import numpy as np

from nvfp4_checker import codecs


class Encoding:
    """What the documented rules make of a group of source matrices that share a global scale."""

    def __init__(self, sources, rounding, four_over_six, stores_reciprocal):
        self.rounding, self.four_over_six = rounding, four_over_six
        forms = {source.form for source in sources}
        self.is_cast = forms in ({"MXFP4"}, {"NVFP4"})
        self.global_scale = self._global_scale(sources, forms)
        if stores_reciprocal and not self.is_cast:
            # What the file will decode with, so that nothing but the encoding is lost.
            self.global_scale = np.float32(1) / (np.float32(1) / self.global_scale)

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
        if not self.is_cast:
            codes, scales = codecs.encode_nvfp4(
                values, self.global_scale, self.rounding, self.four_over_six
            )
            none = np.zeros(scales.shape, bool)
            return codes, scales, none, none
        # Of blocks that are encoded again; as in ModelOpt's cast, no scale is below 2^-9.
        _, scales = codecs.encode_nvfp4(values, self.global_scale, self.rounding)
        scales = np.maximum(scales, np.uint8(1))
        codes = codecs.pack(codecs.encode_blocks(values, scales, self.global_scale, self.rounding))
        stored = source.weight.rows(begin, end).view(np.uint8)
        if source.form == "NVFP4":
            # Scales come out positive: the codes take the sign of a negative one.
            negative = source.scales.rows(begin, end).view(np.uint8) >> 7
            stored = stored ^ np.repeat(negative * np.uint8(0x88), codecs.NVFP4_BLOCK // 2, axis=1)
        multipliers = source.scales.rows(begin, end).view(np.uint8)
        if source.form == "MXFP4":
            multipliers = np.repeat(codecs.e8m0_values(multipliers).astype(np.float64), 2, axis=1)
        else:
            multipliers = codecs.e4m3_values(multipliers & 0x7F).astype(np.float64) * np.float64(
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
