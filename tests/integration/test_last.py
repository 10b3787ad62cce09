#!/usr/bin/python3
"""The end of an epoch (drop, pad, partial), orders of epochs and seeds, resumption with other worlds: each sample as often as promised."""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import harness  # noqa: E402
import numpy as np  # noqa: E402
from harness import check, equal  # noqa: E402
from PIL import Image  # noqa: E402


def numbered(work, count, name="n", side=16):
    """`count` small pictures, each in one colour that tells its number."""
    folder = work.path / name
    folder.mkdir()
    for i in range(count):
        Image.new("RGB", (side, side), (i % 256, (i // 256) * 40, 200)).save(folder / f"{i:04d}.jpg", quality=95)
    return folder


def synthetic(samples, last, shuffle="global"):
    return (f"datasets:\n  p:\n    source: {{synthetic: {{samples: {samples}, bytes: 16}}}}\n"
            f"    order: {{shuffle: {shuffle}}}\n    last: {last}\n")


def ids(lines):
    return [number for line in lines for number in line["ids"]]


def test_ten_samples_three_ranks(work):
    """Every rank gets the same number of batches, whatever is left over."""
    for last, steps in (("drop", 1), ("pad", 2), ("partial", 2)):
        config = work.config(synthetic(10, last))
        ranks = [work.pull("p", batch=6, rank=rank, world=3, config=config, hash=True) for rank in range(3)]
        equal([len(lines) for lines in ranks], [steps] * 3, f"{last}: batches of the ranks")
        shown = [ids(lines) for lines in ranks]
        valid = sum(line["valid"] for lines in ranks for line in lines)
        if last == "drop":
            equal(len(set(sum(shown, []))), 6, "drop: different samples")
        if last == "pad":
            equal((len(sum(shown, [])), len(set(sum(shown, []))), valid), (12, 10, 10), "pad: places, samples, valid")
        if last == "partial":
            equal((sorted(sum(shown, [])), valid), (list(range(10)), 10), "partial: samples, valid")
            equal([lines[1]["rows"] for lines in ranks], [2, 2, 0], "partial: rows of the ranks in the last step")
            equal([line["fields"]["bin"]["shape"][0] for line in (lines[1] for lines in ranks)], [2, 2, 0], "partial: shapes")


def test_partial_shows_no_old_bytes(work):
    folder, out = numbered(work, 10), work.path / "out"
    config = work.config(harness.folder_config(folder, more="    last: pad\n", head="slots: 2\n"))
    lines = work.pull("p", batch=4, config=config, out=out, hash=True)
    equal([(line["rows"], line["valid"]) for line in lines], [(4, 4), (4, 4), (4, 2)], "pad: rows and valid")
    first = {row[1]: row[0] for row in harness.rows_of(lines[:3])}
    equal(len(first), 10, "pad: all ten samples seen")
    padded = lines[2]["ids"][2:]
    equal(padded, ids(lines)[:2], "a padded row shows the sample of its position mod N")


def test_no_step_at_all_is_refused(work):
    r = work.ctl("pull", "p", "--batch", 8, config=work.config(synthetic(7, "drop")), code=None)
    check(r.code in (1, 2, 4) and "7" in r.err and "8" in r.err, f"N < G with drop: exit {r.code}, {r.err!r}")
    for last, rows in (("pad", 8), ("partial", 7)):
        lines = work.pull("p", batch=8, config=work.config(synthetic(7, last)))
        equal([line["rows"] for line in lines], [rows], f"N < G with {last}")


def test_orders_of_epochs_and_seeds(work):
    config = work.config(synthetic(100, "drop"))
    whole = work.pull("p", batch=10, seed=1, steps=30, config=config)
    orders = [ids(whole[k * 10:k * 10 + 10]) for k in range(3)]
    for order in orders:
        equal(sorted(order), list(range(100)), "an epoch is a permutation")
    check(orders[0] != orders[1] != orders[2] != orders[0], "orders of three epochs differ")
    equal(ids(work.pull("p", batch=10, seed=1, epoch=2, config=config)), orders[2], "beginning at epoch 2")
    check(ids(work.pull("p", batch=10, seed=2, config=config)) != orders[0], "seed 2 has another order")
    plain = work.config(synthetic(100, "drop", "none"))
    equal(ids(work.pull("p", batch=10, config=plain)), list(range(100)), "shuffle none")


def test_resume_with_other_worlds(work):
    """96 samples, batch of 16 by 4 ranks, 3 steps; then 2 and 8 ranks: the other 48, each once."""
    config = work.config(synthetic(96, "drop"))
    first = [work.pull("p", batch=16, rank=rank, world=4, steps=3, config=config) for rank in range(4)]
    used, state = set(sum(map(ids, first), [])), first[0][-1]["state"]
    equal(len(used), 48, "used")
    for world in (1, 2, 8, 16):
        rest = [work.pull("p", batch=16, rank=rank, world=world, state=state, config=config) for rank in range(world)]
        equal({len(lines) for lines in rest}, {3}, f"batches of {world} ranks")
        equal(sorted(sum(map(ids, rest), [])), sorted(set(range(96)) - used), f"what {world} ranks get")


def test_states_do_not_depend_on_threads(work):
    folder = numbered(work, 96)
    config = work.config(harness.folder_config(folder))
    whole = work.pull("p", batch=4, sets=["threads.decode=8"], config=config, hash=True)
    rest = work.pull("p", batch=4, sets=["threads.decode=1"], state=whole[6]["state"], config=config, hash=True)
    equal(harness.without_waits(rest), harness.without_waits(whole[7:]), "8 threads, then 1")


def test_crops_of_copies_differ(work):
    """One picture 64 times: crops differ between rows and epochs and do not depend on threads."""
    folder = work.path / "copies"
    folder.mkdir()
    photo = sorted(harness.photos(300).rglob("*.jpg"))[3]
    for i in range(64):
        shutil.copy(photo, folder / f"{i:02d}.jpg")
    config = work.config(harness.folder_config(folder))
    seen = {}
    for threads in (1, 4, 16):
        lines = work.pull("p", batch=16, steps=8, draws=True, config=config, sets=[f"threads.decode={threads}"])
        crops = [(tuple(d["crop"]), d["flip"]) for line in lines for d in line["draws"]]
        seen[threads] = crops
        check(len(set(crops[:64])) >= 60, f"{len(set(crops[:64]))} different crops of 64")
        of_key = [{k: c for line in part for k, c in zip(line["keys"], (tuple(d["crop"]) for d in line["draws"]))}
                  for part in (lines[:4], lines[4:])]
        same = sum(of_key[0][key] == of_key[1][key] for key in of_key[0])
        check(same <= 3, f"{same} of 64 crops are the same in two epochs")
    equal(seen[4], seen[1], "crops of 4 threads and 1")
    equal(seen[16], seen[1], "crops of 16 threads and 1")


def test_slow_pictures_do_not_change_the_order(work):
    folder = numbered(work, 42)
    big = Image.effect_noise((2200, 2200), 60).convert("RGB")
    for i in range(0, 42, 7):
        big.save(folder / f"{i:04d}.jpg", quality=90)
    config = work.config(harness.folder_config(folder))
    orders = [ids(work.pull("p", batch=6, steps=14, config=config, sets=[f"threads.decode={n}"])) for n in (1, 3, 16)]
    equal(orders[1], orders[0], "order with 3 threads")
    equal(orders[2], orders[0], "order with 16 threads")


def test_slots_are_not_written_while_read(work):
    """Pictures whose colour is their number, two slots, a slow reader: each agrees with its key."""
    folder, out = numbered(work, 1000), work.path / "out"
    config = work.config(f"""slots: 2
datasets:
  p:
    source: {{folder: {folder}}}
    fields:
      image: {{from: jpg, decode: image, ops: [{{resize: {{size: 8}}}}, {{center_crop: {{size: 8}}}}], dtype: uint8, layout: nhwc}}
""")
    seen = []
    for line in work.pull("p", batch=50, config=config, sets=["threads.decode=8"], delay_ms=3, out=out):
        array = np.load(out / f"{line['epoch']:04d}-{line['step']:08d}.image.npy").astype(int)
        for row, key in zip(array, line["keys"]):
            number = int(key[:4])
            wanted = (number % 256, (number // 256) * 40, 200)
            off = np.abs(row.reshape(-1, 3).mean(axis=0) - wanted).max()
            check(off < 4, f"the row of {key} has colour {row[4, 4].tolist()}, wanted {wanted}")
            seen.append(number)
    equal(sorted(seen), list(range(1000)), "every picture once")


if __name__ == "__main__":
    harness.main(globals())
