// user.cc: a program against the installed C++ API: prints what the model answers. It includes
// nothing but public headers, so it shows that they stand alone.
#include <iostream>

#include "dsv4/dsv4.h"
#include "dsv4/engine.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    // An error of the library must arrive as its own type.
    dsv4::Engine::open({.model_dir = "no/such/model"});
    return 1;
  } catch (const dsv4::Error& error) {
    if (error.code() != dsv4::ErrorCode::kNotFound) return 1;
    std::cerr << "as expected: " << dsv4::to_string(error.code()) << ": " << error.what() << "\n";
  }
  const auto engine = dsv4::Engine::open({.model_dir = argv[1], .activations = "a16"});
  dsv4::Request request;
  request.prompt = engine->chat_prompt(
      R"({"messages": [{"role": "user", "content": "How many bridges does Ostholm have?"}]})");
  request.sampling.temperature = 0;
  dsv4::RequestHandle handle = engine->submit(request);
  while (const auto event = handle.next()) {
    if (const auto* token = std::get_if<dsv4::TokenEvent>(&*event)) {
      std::cout << token->text;
    } else if (const auto* finish = std::get_if<dsv4::FinishEvent>(&*event)) {
      std::cout << finish->text << "\n";
    } else {
      return 1;
    }
  }
  return 0;
}
