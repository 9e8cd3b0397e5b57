#pragma once
/** @file Pictures in files, by libpng and libjpeg. Link to the target bs::image, which is there
 * where both are installed. */
#include <bs/lib/file.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/tensor.h>

#include <csetjmp>
#include <cstdio>
// libjpeg's header wants the one above.
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace bs {

namespace detail {

constexpr int64_t most_image_bytes = int64_t{1} << 31;
/// More than a byte of a file can hold: deflate's 1,032 bytes of one bit a pixel. Of JPEG it is
/// 512.
constexpr int64_t most_pixels_a_byte = 1032 * 8;

/// Before memory is had for pixels that a header only claims.
inline void check_image_extents(const std::string& path, size_t file_bytes, int64_t width,
                                int64_t height, int channels) {
  const int64_t most =
      std::min(most_image_bytes / channels, static_cast<int64_t>(file_bytes) * most_pixels_a_byte);
  if (width <= 0 || height <= 0 || width > most / height)
    BS_THROW(IoError, "{}: a picture of {} x {} pixels in {} bytes", path, width, height,
             file_bytes);
}

/// Rows of pixels, [height, width, channels].
inline Tensor decode_png(const std::string& path, const std::string& bytes, int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  struct Free {
    png_image* image;
    ~Free() { png_image_free(image); }
  } const free{&image};
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0)
    BS_THROW(IoError, "{}: {}", path, image.message);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  check_image_extents(path, bytes.size(), image.width, image.height, channels);
  const Tensor pixels = Tensor::empty({image.height, image.width, channels}, u8);
  const png_color black{};
  if (png_image_finish_read(&image, &black, pixels.data(), 0, nullptr) == 0)
    BS_THROW(IoError, "{}: {}", path, image.message);
  return pixels;
}

/// libjpeg's way to fail: it must not return, and C code is no place for exceptions to pass.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];

  [[noreturn]] static void fail(j_common_ptr common) {
    auto* errors = reinterpret_cast<JpegErrors*>(common->err);
    common->err->format_message(common, errors->text);
    std::longjmp(errors->back, 1);
  }
  /// A file that ends too soon is a warning to libjpeg, which goes on with grey.
  static void warn(j_common_ptr common, int level) {
    if (level < 0) fail(common);
  }
};

/// Reads the header and the extents. Nothing here has a destructor, which longjmp would pass over.
inline bool read_jpeg_header(jpeg_decompress_struct& jpeg, JpegErrors& errors,
                             const std::string& bytes) {
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = JpegErrors::fail;
  errors.manager.emit_message = JpegErrors::warn;
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

/// Takes memory for all coefficients of a progressive file.
inline bool start_jpeg(jpeg_decompress_struct& jpeg, JpegErrors& errors, int channels) {
  if (setjmp(errors.back) != 0) return false;
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  return true;
}

inline bool read_jpeg_rows(jpeg_decompress_struct& jpeg, JpegErrors& errors, uint8_t* pixels,
                           size_t row_bytes) {
  if (setjmp(errors.back) != 0) return false;
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

inline Tensor decode_jpeg(const std::string& path, const std::string& bytes, int channels) {
  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  struct Free {
    jpeg_decompress_struct* jpeg;
    ~Free() { jpeg_destroy_decompress(jpeg); }
  } const free{&jpeg};
  if (channels == 4) BS_THROW(IoError, "{}: a JPEG file has no fourth channel", path);
  if (!read_jpeg_header(jpeg, errors, bytes)) BS_THROW(IoError, "{}: {}", path, errors.text);
  check_image_extents(path, bytes.size(), jpeg.image_width, jpeg.image_height, channels);
  if (!start_jpeg(jpeg, errors, channels)) BS_THROW(IoError, "{}: {}", path, errors.text);
  const Tensor pixels = Tensor::empty({jpeg.output_height, jpeg.output_width, channels}, u8);
  const size_t row_bytes = size_t{jpeg.output_width} * static_cast<size_t>(channels);
  if (!read_jpeg_rows(jpeg, errors, static_cast<uint8_t*>(pixels.data()), row_bytes))
    BS_THROW(IoError, "{}: {}", path, errors.text);
  return pixels;
}

}  // namespace detail

/** @brief The pixels of a PNG or JPEG file, from 0 to 255, on the host.
 *  @param[in] channels 1: grey, 3: red, green and blue, 4: and opacity, of PNG alone. The file's
 * own are converted; what is transparent stands on black.
 *  @return u8 [channels, height, width], a view of rows of pixels: contiguous() copies it
 *  @throws IoError naming the path, for what is neither, is damaged or cut off. Also for what says
 *    that it has more pixels than its bytes can hold; OutOfMemory; Error for other channels */
inline Tensor read_image(const std::string& path, int channels = 3) try {
  BS_CHECK(channels == 1 || channels == 3 || channels == 4, "read_image: {} channels", channels);
  InputFile file(path);
  const std::string bytes = file.read_text(static_cast<size_t>(file.size()));
  Tensor pixels;
  if (bytes.starts_with("\x89PNG")) {
    pixels = detail::decode_png(path, bytes, channels);
  } else if (bytes.starts_with("\xff\xd8\xff")) {
    pixels = detail::decode_jpeg(path, bytes, channels);
  } else {
    BS_THROW(IoError, "{}: is neither a PNG nor a JPEG file", path);
  }
  return pixels.permute({2, 0, 1});
} catch (const std::bad_alloc&) {
  out_of_own_memory("read_image", path);
}

}  // namespace bs
