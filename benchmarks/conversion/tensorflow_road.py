"""Road (a), in TensorFlow's own environment: records by `tf.data`, parsed by its protocol buffers, PNGs by Pillow.

This is how AITW's own notebook reads the data set. Neither the start of TensorFlow is timed nor the end of its reader,
which can sleep for seconds until the thread that tunes the pipeline looks up: in a long run neither would show.
"""

from pathlib import Path

from benchmarks.conversion.measure import make_parser, report, stay_on


def main() -> None:
    options = make_parser(__doc__).parse_args()
    stay_on(options.cores)
    import tensorflow as tf

    next(tf.data.Dataset.range(1).as_numpy_iterator())
    options.output.mkdir()
    files = [str(file) for file in options.files]
    records = tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator()
    report(lambda: convert(tf, records, options.output))  # `records` outlives the clock


def convert(tf, records, output: Path) -> None:
    import numpy as np
    from PIL import Image

    for number, record in enumerate(records):
        feature = tf.train.Example.FromString(record).features.feature
        size = [feature[f"image/{name}"].int64_list.value[0] for name in ("height", "width", "channels")]
        pixels = np.frombuffer(feature["image/encoded"].bytes_list.value[0], np.uint8).reshape(size)
        Image.fromarray(pixels).save(output / f"{number}.png")


if __name__ == "__main__":
    main()
