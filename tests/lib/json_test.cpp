#include <bs/lib/check.h>
#include <bs/lib/json.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;

namespace {
std::string refusal(std::string_view text) {
  try {
    Json::parse(text);
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}
}  // namespace

TEST_CASE("json reads values") {
  CHECK(Json::parse(" null ").is_null());
  CHECK(Json::parse("true").boolean());
  CHECK_FALSE(Json::parse("\t\r\nfalse").boolean());
  CHECK(Json::parse("0").integer() == 0);
  CHECK(Json::parse("-9223372036854775808").integer() == std::numeric_limits<int64_t>::min());
  CHECK(Json::parse("9223372036854775808").number() == 0x1p63);
  CHECK(Json::parse("-12.5e-1").number() == -1.25);
  CHECK(Json::parse("1E+2").number() == 100);
  CHECK(Json::parse("7").number() == 7);
  CHECK(Json::parse("\"\"").string().empty());
  CHECK(Json::parse("[]").array().empty());
  CHECK(Json::parse("{ }").object().empty());
  const Json value = Json::parse(R"( {"b": [1, [2], {"c": null}], "a": "x"} )");
  CHECK(value.object()[0].first == "b");
  CHECK(value.find("b")->array()[1].array()[0].integer() == 2);
  CHECK(value.find("b")->array()[2].find("c")->is_null());
  CHECK(value.find("a")->string() == "x");
  CHECK(value.find("z") == nullptr);
}

TEST_CASE("json reads strings") {
  CHECK(Json::parse(R"("\"\\\/\b\f\n\r\t")").string() == "\"\\/\b\f\n\r\t");
  CHECK(Json::parse(R"("\u0041\u00e9\u20AC\ud83d\ude00")").string() == "A\u00e9\u20ac\U0001f600");
  CHECK(Json::parse(R"("a\u0000b")").string() == std::string("a\0b", 3));
  CHECK(Json::parse("\"\u00e9\u20ac\U0001f600\"").string() == "\u00e9\u20ac\U0001f600");
}

TEST_CASE("json refuses everything else") {
  CHECK(refusal("") == "json: no value at byte 0");
  CHECK(refusal("1 2") == "json: something follows the value at byte 2");
  CHECK(refusal("{\"a\":1,\"a\":2}") == "json: an object has a member twice at byte 13");
  CHECK(refusal("[1,]") == "json: no value at byte 3");
  CHECK(refusal("[1 2]") == "json: ']' is missing at byte 3");
  CHECK(refusal("{\"a\" 1}") == "json: ':' is missing at byte 5");
  CHECK(refusal("{\"a\":1") == "json: '}' is missing at byte 6");
  CHECK(refusal("{a:1}") == "json: a member's name is missing at byte 1");
  CHECK(refusal("\"a") == "json: '\"' is missing at byte 2");
  CHECK(refusal("\"\\x\"") == "json: an unknown escape at byte 2");
  CHECK(refusal("\"\\u12g4\"") == "json: an incomplete escape at byte 3");
  CHECK(refusal("\"\\u12") == "json: an incomplete escape at byte 3");
  CHECK(refusal("\"\\ud800x\"") == "json: half a surrogate pair at byte 7");
  CHECK(refusal("\"\\udc00\"") == "json: half a surrogate pair at byte 7");
  CHECK(refusal("\"\\ud800\\u0041\"") == "json: half a surrogate pair at byte 13");
  CHECK(refusal("\"a\nb\"") == "json: a control character in a string at byte 2");
  CHECK(refusal("1e999") == "json: a number is out of range at byte 5");
  for (const char* text : {"01", "1.", ".5", "+1", "-", "1e", "--1", "0x10", "NaN", "Infinity",
                           "'a'", "tru", "nulls", "[", "{\"a\":}", "{,}", "[,1]", "// x\n1", "]"})
    CHECK_MESSAGE(refusal(text) != "accepted", text);
  // Overlong, cut short, a surrogate, above U+10FFFF, a lone continuation.
  for (const char* text : {"\"\xc0\xaf\"", "\"\xe0\x80\xaf\"", "\"\xe2\x82\"", "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"", "\"\x80\"", "\"\xff\"", "\"\xf0\x80\x80\x80\""})
    CHECK(refusal(text).starts_with("json: invalid UTF-8 before at byte"));
  const std::string deep(Json::max_depth, '[');
  CHECK(refusal(deep + std::string(Json::max_depth, ']')) == "accepted");
  CHECK(refusal("[" + deep + "1") == "json: nesting is too deep at byte 65");
}

TEST_CASE("json writes what it reads") {
  const std::string text =
      R"({"a":[1,-2.5,true,null,"x\"\\\n\u0001é"],"b":{},"c":[],"d":0.1,"e":1e+300,"f":3.0})";
  CHECK(Json::parse(text).dump() == text);
  CHECK(Json::parse(text) == Json::parse(Json::parse(text).dump()));
  for (double value : {0.1, 1.0 / 3, 5e-324, -1.7976931348623157e308, -0.0, 123456789012345680.0}) {
    const Json back = Json::parse(Json(value).dump());
    CHECK(back.number() == value);
    CHECK(std::signbit(back.number()) == std::signbit(value));
  }
  CHECK(Json(std::nan("")).dump() == "null");
  CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
  CHECK(Json(Json::Object{{"k", Json::Array{1, "s", false}}}).dump() == R"({"k":[1,"s",false]})");
}

TEST_CASE("json values are used as what they are") {
  CHECK_THROWS_WITH_AS(Json(1).string(), "json: expected a string, found an integer", IoError);
  CHECK_THROWS_WITH_AS(Json("x").number(), "json: expected a number, found a string", IoError);
  CHECK_THROWS_WITH_AS(Json(1.5).integer(), "json: expected an integer, found a number", IoError);
  CHECK_THROWS_WITH_AS(Json().object(), "json: expected an object, found null", IoError);
  CHECK_THROWS_WITH_AS(Json(true).array(), "json: expected an array, found a boolean", IoError);
}

TEST_CASE("json: what is not UTF-8 is not written") {
  CHECK_THROWS_WITH_AS(Json(std::string("na\xefve")).dump(),
                       "json: a string of 5 bytes is not UTF-8", Error);
  CHECK_THROWS_AS(Json(Json::Object{{"\xff", 1}}).dump(), Error);
  CHECK(is_utf8(""));
  CHECK(is_utf8("na\xc3\xafve \xf0\x9f\x98\x80"));
  for (const char* text : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf5\x80\x80\x80", "\xf4\x90\x80\x80", "a\xc3z"})
    CHECK_FALSE(is_utf8(text));
}

TEST_CASE("json: members one by one, each of as many values as allowed") {
  std::vector<std::pair<std::string, Json>> members;
  const auto keep = [&](const std::string& name, Json value) {
    members.emplace_back(name, std::move(value));
  };
  Json::parse_members(R"( {"a": [1, 2], "b": {"c": null}} )", 3, keep);
  CHECK(Json(members) == Json::parse(R"({"a": [1, 2], "b": {"c": null}})"));
  members.clear();
  Json::parse_members("{}", 0, keep);
  CHECK(members.empty());
  CHECK_THROWS_WITH_AS(Json::parse_members(R"({"a": [1, 2, 3]})", 3, keep),
                       "json: too many values at byte 12", IoError);
  for (const char* wrong : {"", "[]", "1", "{", R"({"a": 1} 2)", R"({"a": 1,})", R"({"a"})"})
    CHECK_THROWS_AS(Json::parse_members(wrong, 9, keep), IoError);
  CHECK_THROWS_WITH_AS(Json::parse_members(R"({"a": 1, "b": 2, "a": 3})", 9, keep),
                       "json: an object has a member twice at byte 24", IoError);
}
