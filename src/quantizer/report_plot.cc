// report_plot.cc: the plot of report.h, SVG written by hand: one panel, a line a kind, the head
// behind the last layer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "quantizer/report.h"

namespace dsv4 {
namespace {

constexpr double kWidth = 860, kHeight = 400;
constexpr double kLeft = 70, kRight = 690, kTop = 50, kBottom = 340;  // of the panel
constexpr double kLegendX = kRight + 24, kLegendStep = 22;
constexpr int kWantedTicks = 5;
constexpr int kMostMarkers = 80;  // on a line; beyond, they would only thicken it

// Okabe and Ito's colours, told apart with any colour vision, in the order of MatrixKind.
constexpr std::array<const char*, 8> kColours = {"#0072B2", "#56B4E9", "#D55E00", "#E69F00",
                                                 "#CC79A7", "#009E73", "#999999", "#000000"};

// 1, 2 or 5 times a power of ten, so that about kWantedTicks steps reach `largest`.
double tick_step(double largest) {
  const double rough = largest / kWantedTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

// Where layers and errors lie on the panel.
class Axes {
 public:
  explicit Axes(const QuantizationReport& report) {
    double largest = 0;
    for (const auto& [key, entry] : report.entries()) {
      last_layer_ = std::max(last_layer_, key.second);
      has_head_ |= key.second < 0;
      largest = std::max(largest, entry.tally.relative_error());
    }
    step_ = tick_step(largest > 0 ? largest : 0.1);
    num_steps_ = largest > 0 ? static_cast<int>(std::ceil(largest / step_ - 1e-9)) : kWantedTicks;
    layer_step_ = static_cast<int>(std::max(1.0, tick_step((last_layer_ + 1) * 0.5)));
  }

  double x(int layer) const {
    const int columns = last_layer_ + 1 + (has_head_ ? 1 : 0);
    const int column = layer < 0 ? columns - 1 : layer;
    return kLeft + (column + 0.5) * (kRight - kLeft) / std::max(1, columns);
  }
  double y(double error) const { return kBottom - error / (num_steps_ * step_) * (kBottom - kTop); }

  std::string svg() const {
    std::string text;
    for (int i = 0; i <= num_steps_; ++i) {
      const double at = y(i * step_);
      text += fmt::format(
          "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n"
          "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6:.6g}</text>\n",
          kLeft, kRight, at, i == 0 ? "#444" : "#ddd", kLeft - 8, at + 4, i * step_);
    }
    for (int layer = 0; layer <= last_layer_; layer += layer_step_) {
      text += label(layer, fmt::format("{}", layer));
    }
    if (has_head_) text += label(-1, "head");
    return text;
  }

 private:
  std::string label(int layer, const std::string& name) const {
    return fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(layer),
                       kBottom + 20, name);
  }

  int last_layer_ = -1;
  bool has_head_ = false;
  double step_ = 0;
  int num_steps_ = 0;
  int layer_step_ = 1;
};

std::string kind_svg(const QuantizationReport& report, MatrixKind kind, const Axes& axes) {
  const char* colour = kColours[static_cast<std::size_t>(kind)];
  std::string line, markers;
  int num_points = 0;
  for (const auto& [key, entry] : report.entries()) {
    if (key.first != kind) continue;
    const double x = axes.x(key.second), y = axes.y(entry.tally.relative_error());
    if (key.second >= 0) line += fmt::format("{:.1f},{:.1f} ", x, y);
    markers +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, colour);
    ++num_points;
  }
  std::string text;
  if (!line.empty()) {
    line.pop_back();
    text =
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                    line, colour);
  }
  return num_points <= kMostMarkers ? text + markers : text;
}

}  // namespace

std::string report_plot_svg(const QuantizationReport& report) {
  const Axes axes(report);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"28\" font-size=\"16\">NVFP4: relative RMS error of the weights{3}"
      "</text>\n"
      "<text x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">layer</text>\n",
      kWidth, kHeight, kLeft, report.total().tally.lossless() ? " (nothing was lost)" : "",
      (kLeft + kRight) / 2, kBottom + 44);
  text += axes.svg();
  double legend_y = kTop + 10;
  for (const MatrixKind kind : report.kinds()) {
    text += kind_svg(report, kind, axes);
    text += fmt::format(
        "<rect x=\"{}\" y=\"{:.1f}\" width=\"16\" height=\"4\" fill=\"{}\"/>\n"
        "<text x=\"{}\" y=\"{:.1f}\">{}</text>\n",
        kLegendX, legend_y - 6, kColours[static_cast<std::size_t>(kind)], kLegendX + 24, legend_y,
        to_string(kind));
    legend_y += kLegendStep;
  }
  return text + "</svg>\n";
}

}  // namespace dsv4
