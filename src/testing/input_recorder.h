// input_recorder.h: the reference backend, noting in which format each matrix of a linear is fed.
#pragma once

#include <map>

#include "reference/reference_backend.h"

namespace dsv4 {

class InputRecorder final : public ReferenceBackend {
 public:
  std::map<const void*, Format> input_of;  // by the matrix's data

 protected:
  using ReferenceBackend::compute;
  void compute(const LinearParams& p, const OpContext& context) override {
    input_of[p.w.data] = p.x.format;
    ReferenceBackend::compute(p, context);
  }
};

}  // namespace dsv4
