#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --explain: every check has its text, whose settings exist and
# whose example and way out are those of test/data/bad and good.
# shellcheck disable=SC2016 # Perl's, not the shell's
# shellcheck source=test/lib.sh
. test/lib.sh

ids=$(cfg-finalize --list-checks | cut -d' ' -f1)
cfg-finalize --list-settings | grep -oE '^[a-z]+\.[a-z0-9_]+$' >"$T/settings"

# part LABEL: what $out says behind it, in one line
part() {
	perl -ne 'BEGIN { $want = shift } /^  (\S.{8}\S? *|.{10})(.*)/ or next;
		($l, $t) = ($1, $2); $l =~ s/ +$//; $on = $l eq $want if $l ne "";
		push @t, $t if $on; END { print "@t" }' "$1" <<<"$out"
}

# not_in FILE TEXT: the assignments of TEXT that FILE does not have
not_in() {
	perl -e '($file, $text) = @ARGV;
		open F, $file; local $/; $all = <F>; $all =~ s/^#.*\n//mg;
		$text =~ s/\(([^()]*[^()0-9.\s,"ab][^()]*)\)//g;
		for (split /;/, $text) {
			s/^\s+|\s+$//g;
			next unless /^[a-z0-9_]+ = \S.*$/;
			print "$_; " unless $all =~ /^\s*\Q$_\E;/m;
		}' "$1" "$2"
}

for id in $ids; do
	run cfg-finalize --explain "$id"
	is "$id: exit code" $rc 0
	like "$id: its severity" "$(head -n1 <<<"$out")" "^$id, (error|warning|note)$"
	is "$id: its rule" "$(part demands)" \
		"$(cfg-finalize --list-checks | sed -n "s/^$id  *[a-z]*  *//p")"
	like "$id: why" "$(part why)" '^.{20,600}[.)]$'
	like "$id: an example" "$(part 'fired by')" .
	like "$id: a way out" "$(part 'way out')" .
	is "$id: its settings are settings" \
		"$(part settings | tr ' ' '\n' | sed '/^$/d' | grep -vxFf "$T/settings")" ""
	[[ $id == conf-* || $id == import-* ]] && continue
	is "$id: the example is in test/data/bad" \
		"$(not_in "test/data/bad/$id.cfg" "$(part 'fired by')")" ""
	is "$id: the way out is in test/data/good" \
		"$(not_in "test/data/good/$id.cfg" "$(part 'way out')")" ""
done
is "no line is longer than 80 columns" \
	"$(for id in $ids; do cfg-finalize --explain "$id"; done | grep -E '^.{81}')" ""
is "no text without a check" "$(sed -n 's/^{"\([a-z-]*\)",.*/\1/p' lib/plan/check_text.c |
	sort | xargs)" "$(sort <<<"$ids" | xargs)"

# unknown ones
run cfg-finalize --explain place-haeds
is "an unknown id exits 2" $rc 2
like "the nearest is said" "$err" "'place-haeds' is no check; try place-heads$"
run cfg-finalize --explain heads
like "or those that it is a part of" "$err" "try .*shape-heads.*place-heads"
run cfg-finalize --explain zzz
like "or where all are" "$err" "'zzz' is no check; --list-checks prints all"
run cfg-finalize --explain ''
is "an empty id exits 2" $rc 2
run cfg-finalize --explain place-heads --explain none --explain run-batch
is "several: the worst exit code" $rc 2
is "several: all that there are" "$(grep -E '^[a-z]' <<<"$out" | xargs)" \
	"place-heads, error run-batch, error"
done_testing
