#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --explain: every check has its text, whose settings exist and
# whose example and way out are those of test/data/bad and good.
# shellcheck disable=SC2016 # Perl's, not the shell's
# shellcheck source=test/lib.sh
. test/lib.sh

ids=$(cfg-finalize --list-checks | cut -d' ' -f1)
cfg-finalize --list-settings | grep -oE '^[a-z]+\.[a-z0-9_]+$' >"$T/settings"

# What is wrong with what --explain says of them, "ID: what" a line.
cat >"$T/judge.pl" <<'END'
my ($settings, $list) = @ARGV;
my %setting = map { chomp; $_ => 1 } do { open my $f, $settings; <$f> };
my %check;
for (do { open my $f, $list; <$f> }) {
	/^(\S+) +(\w+) +(.*)/ and $check{$1} = [$2, $3];
}

# The assignments of TEXT that FILE does not have.
sub not_in {
	my ($file, $text) = @_;
	my $all = do { local $/; open my $f, $file; <$f> };
	$all =~ s/^#.*\n//mg;
	$text =~ s/\(([^()]*[^()0-9.\s,"ab][^()]*)\)//g;
	return grep { /^[a-z0-9_]+ = \S.*$/ && $all !~ /^\s*\Q$_\E;/m }
		map { s/^\s+|\s+$//gr } split /;/, $text;
}

local $/ = "";
while (my $all = <STDIN>) {
	my ($first, @lines) = split /\n/, $all;
	my ($id, $severity) = split /, /, $first;
	my (%part, $label);
	my $wrong = sub { print "$id: @_\n" };
	for (@lines) {
		/^  (.{10})(.*)/ or $wrong->("strange line '$_'");
		my ($l, $t) = ($1, $2);
		$l =~ s/ +$//;
		$label = $l if $l;
		push @{$part{$label}}, $t;
	}
	$_ = join " ", @$_ for values %part;
	$wrong->("severity $severity") if $severity ne $check{$id}[0];
	$wrong->("another rule") if $part{demands} ne $check{$id}[1];
	$wrong->("why: '$part{why}'") if $part{why} !~ /^.{20,600}[.)]$/;
	for ("fired by", "way out") { $wrong->("nothing is $_") unless $part{$_} }
	for (split ' ', $part{settings}) { $wrong->("$_ is no setting") unless $setting{$_} }
	next if $id =~ /^(conf|import)-/;
	$wrong->("not in its bad file: $_") for not_in("test/data/bad/$id.cfg", $part{"fired by"});
	$wrong->("not in its good file: $_") for not_in("test/data/good/$id.cfg", $part{"way out"});
}
END
cfg-finalize --list-checks >"$T/checks"
mapfile -t explain <<<"$ids"
cfg-finalize "${explain[@]/#/--explain=}" >"$T/all"
is "--explain says something of every check" "$(grep -cE '^[a-z]' "$T/all")" "$(wc -l <<<"$ids")"
perl "$T/judge.pl" "$T/settings" "$T/checks" <"$T/all" >"$T/wrong"
for id in $ids; do
	is "$id: severity, rule, settings, example and way out are true" \
		"$(grep "^$id: " "$T/wrong")" ""
done
is "no line is longer than 80 columns" \
	"$(grep -E '^.{81}' "$T/all")" ""
is "no text without a check" "$(sed -n 's/^{"\([a-z-]*\)",.*/\1/p' lib/plan/check_text.c |
	sort | xargs)" "$(sort <<<"$ids" | xargs)"

is "the man page's table is that of --list-checks (make man)" \
	"$(sed -n '/^\.\\" >>> checks/,/^\.\\" <<< checks/p' bin/cfg-finalize.1 | sed '1d;$d')" \
	"$(cfg-finalize --list-checks | bin/man-checks)"

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
