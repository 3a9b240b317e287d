// plan_notes.h: the sentences by which a plan tells its user what engines cannot do with the
// result. What is planned: plan.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/matrix_list.h"
#include "checkpoint/tensor_names.h"

namespace dsv4 {

// All are empty where there is nothing to say.

// Of the routed experts' NVFP4 matrices, `with_scale` of which have an input scale; where not all
// have one, none is written.
std::string input_scale_note(std::int64_t matrices, std::int64_t with_scale, Nvfp4Layout layout);

// Of NVFP4 matrices beside the routed experts that have no input scale.
std::string other_input_scale_note(std::int64_t matrices);

// Layers of which some routed experts' matrices are NVFP4, being chosen or so already, and others
// are not: dsv4 runs them; engines that fuse a layer's experts do not.
std::string split_layers_note(std::span<const NamedMatrix> matrices,
                              const std::vector<bool>& chosen, std::size_t num_layers);

}  // namespace dsv4
