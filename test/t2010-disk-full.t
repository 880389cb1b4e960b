#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A full disk: exit 9, how much was needed, and the old checkpoint as good as
# before.
# shellcheck source=test/lib.sh
. test/lib.sh

# A file system of our own, which nobody else sees.
if [ -z "${DISK_FULL_INSIDE:-}" ]; then
	as=(unshare -m)
	[ "$(id -u)" -eq 0 ] || as=(unshare -rm)
	"${as[@]}" mount -t tmpfs none "$T" 2>/dev/null ||
		skip_all "no right to mount a small file system"
	rmdir "$T"
	DISK_FULL_INSIDE=1 exec "${as[@]}" bash "$0"
fi

sim=${TRISECT_BUILD:-build/cpu}/test/x-ckpt
model=(shape.num_layers=4 shape.hidden_size=32 shape.num_attention_heads=4
	shape.vocab_size=61 shape.seq_length=16 place.use_distributed_optimizer=true)
small=$T/small

save() { "$sim" save "$small" "$1" 4 f32 "${model[@]}"; }

mkdir "$small"
mount -t tmpfs -o size=64m none "$small"
ok "a first checkpoint" save 10
bytes=$(ckpt-merge reshard "$small" "$T/x" --dry-run | sed -n 's/.*writes \([0-9]*\).*/\1/p')

free_kib() { df -k --output=avail "$small" | tail -n 1; }

refused() { # refused NAME KIB WANT : with KIB of room left
	fallocate -l $(($(free_kib) - $2))K "$small/filler"
	run save 20
	is "$1: exit 9" $rc 9
	like "$1: the bytes needed" "$err" "saving $small/step_00000020 \($bytes bytes\)"
	like "$1: why" "$err" "$3"
	ok "$1: nothing left behind" \
		[ "$(ls -A "$small")" = $'LATEST\nfiller\nstep_00000010' ]
	is "$1: the old one is sound" "$(ckpt-merge verify "$small")" \
		"$small/step_00000010: sound"
	run ckpt-merge reshard "$small" "$small/other" --world 2
	is "$1: reshard: exit 9" $rc 9
	like "$1: reshard: the bytes needed" "$err" "\($bytes bytes\)"
	ok "$1: reshard: nothing left behind" [ ! -e "$small/other" ]
	rm "$small/filler"
}

refused "no room at all" 16 "[0-9]+ bytes are free"
refused "room for the payloads alone" $((bytes / 1024 + 32)) \
	"No space left on device"
ok "with room again it goes on" save 20
is "with room again: sound" "$(ckpt-merge verify "$small")" \
	"$small/step_00000020: sound"
umount "$small"
done_testing
