"""`tf.train.Example` as Google's protobuf library reads it, from a descriptor made here: the judge of our own codec."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto


def example_class(packed: bool = True):
    """The message class; with `packed` False, one that writes numbers one by one, as old writers did."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package="tf", syntax="proto3")
    for name, kind in (
        ("BytesList", _Field.TYPE_BYTES),
        ("FloatList", _Field.TYPE_FLOAT),
        ("Int64List", _Field.TYPE_INT64),
    ):
        field = file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=3)
        if kind != _Field.TYPE_BYTES:
            field.options.packed = packed
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        type_name = ".tf." + name.title().replace("_", "")
        feature.field.add(
            name=name, number=number, type=_Field.TYPE_MESSAGE, label=1, type_name=type_name, oneof_index=0
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_Field.TYPE_MESSAGE, label=1, type_name=".tf.Feature")
    features.field.add(
        name="feature", number=1, type=_Field.TYPE_MESSAGE, label=3, type_name=".tf.Features.FeatureEntry"
    )
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=_Field.TYPE_MESSAGE, label=1, type_name=".tf.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf.Example"))


Example = example_class()


def lists_of(example) -> dict[str, tuple[str | None, list]]:
    """name → (kind, values) as plain Python."""
    found = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        found[name] = (kind and kind.removesuffix("_list"), values)
    return found
