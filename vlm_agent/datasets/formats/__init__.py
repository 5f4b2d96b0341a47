"""File formats of sources, read without the library that wrote them: TFRecord, tf.train.Example, gzip, JSON lists."""
