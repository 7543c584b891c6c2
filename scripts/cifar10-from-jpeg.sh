#!/bin/sh
# Converts an archive of CIFAR-10 as JPEG images (train/CLASS/NNNN.jpg, test/CLASS/NNNN.jpg) into the
# binary files of the original: OUT/data_batch_1..5.bin and OUT/test_batch.bin; with a size, only the
# first images of each class, as OUT/cifar10_small_train.bin and cifar10_small_test.bin.
# Classes take turns, so every file holds equally many of each. JPEG is lossy: the pixels are near those of
# the original files, not equal.
# usage: cifar10-from-jpeg.sh ARCHIVE.tar.xz OUT [TRAIN_PER_CLASS TEST_PER_CLASS]
# Needs python3 with PIL (Debian: python3-pil).
set -eu
[ $# -eq 2 ] || [ $# -eq 4 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$2"
for python in /usr/bin/python3 python3; do
    "$python" -c 'import PIL' 2>/dev/null && break
done
exec "$python" - "$@" <<'EOF'
import io, sys, tarfile
from PIL import Image

archive, out = sys.argv[1:3]
small = [int(n) for n in sys.argv[3:]]
classes = "airplane automobile bird cat deer dog frog horse ship truck".split()
records = {}
with tarfile.open(archive) as tar:
    for member in tar:
        if not member.name.endswith(".jpg"):
            continue
        split, name, file = member.name.split("/")[-3:]
        index = int(file[:-4])
        if small and index >= small[split == "test"]:
            continue
        image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")
        if image.size != (32, 32):
            sys.exit(f"{member.name}: {image.size}, not 32x32")
        planes = b"".join(channel.tobytes() for channel in image.split())
        label = classes.index(name)
        records[split, index, label] = bytes([label]) + planes

def write(file, some):
    with open(f"{out}/{file}", "wb") as f:
        f.write(b"".join(some))
    print(f"{out}/{file}: {len(some)} images")

train, test = ([records[key] for key in sorted(records) if key[0] == split] for split in ("train", "test"))
if small:
    write("cifar10_small_train.bin", train)
    write("cifar10_small_test.bin", test)
else:
    per_file = len(train) // 5
    for i in range(5):
        write(f"data_batch_{i + 1}.bin", train[i * per_file:(i + 1) * per_file])
    write("test_batch.bin", test)
EOF
