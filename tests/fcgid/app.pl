#!/usr/bin/perl
use strict;
use warnings;
use Socket;
$| = 1;
my $served = 0;
sub take {
    my ($client, $count) = @_;
    my $all = '';
    while (length $all < $count) {
        my $read = sysread($client, $all, $count - length $all, length $all);
        return undef unless $read;
    }
    return $all;
}
sub record {
    my ($client, $kind, $content) = @_;
    my $bytes = pack('CCnnCC', 1, $kind, 1, length $content, 0, 0) . $content;
    while (length $bytes) {
        my $sent = syswrite($client, $bytes) // return;
        substr($bytes, 0, $sent, '');
    }
}
$SIG{PIPE} = 'IGNORE';
while (accept(my $client, STDIN)) {
    $served++;
    my ($params, $body, %env) = ('', '');
    while (defined(my $head = take($client, 8))) {
        my (undef, $kind, undef, $length, $padding) = unpack('CCnnC', $head);
        my $content = take($client, $length) // '';
        take($client, $padding);
        $params .= $content if $kind == 4;
        $body .= $content if $kind == 5;
        last if $kind == 5 && $length == 0;
    }
    while (length $params) {
        my @lengths;
        for (0, 1) {
            my $length = unpack('C', $params);
            $length = $length < 128 ? unpack('C', substr($params, 0, 1, ''))
                : unpack('N', substr($params, 0, 4, '')) & 0x7fffffff;
            push @lengths, $length;
        }
        my $name = substr($params, 0, $lengths[0], '');
        $env{$name} = substr($params, 0, $lengths[1], '');
    }
    my ($do) = ($env{QUERY_STRING} // '') =~ /^do=([a-z0-9]+)/;
    $do //= 'plain';
    my $type = "Content-Type: text/plain\r\n";
    if ($do eq 'die') { exit 3 }
    if ($do eq 'kill') { kill 9, $$ }
    if ($do eq 'hang') { sleep 600 }
    if ($do eq 'wait') { select(undef, undef, undef, 0.3) }
    if ($do eq 'stderr') { record($client, 7, "a complaint\n") }
    my $out = $do eq 'status' ? "Status: 418 Short and stout\r\n${type}X-Own: a\r\n\r\nteapot\n"
        : $do eq 'number' ? "Status: 404\r\n$type\r\nnone\n"
        : $do eq 'location' ? "Location: http://other.test/a?b\r\nSet-Cookie: c=3\r\n\r\nignored\n"
        : $do eq 'inside' ? "Location: /a.txt\r\n\r\nignored\n"
        : $do eq 'moved' ? "Status: 302 Moved\r\nLocation: /elsewhere\r\n$type\r\nmine\n"
        : $do eq 'cookies' ? "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n$type\r\nx\n"
        : $do eq 'modified' ? "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n$type\r\nx\n"
        : $do eq 'lf' ? "Content-Type: text/plain\n\nlines\n"
        : $do eq 'body' ? "$type\r\n" . length($body) . " " . ($env{CONTENT_LENGTH} // '-') . "\n"
        : $do eq 'echo' ? "$type\r\n$body"
        : $do eq 'large' || $do eq 'cut' ? "$type\r\n" . ('0123456789' x 20000)
        : $do eq 'nothing' ? ''
        : $do eq 'half' ? "Content-Type: text/plain\r\n"
        : $do eq 'malformed' ? "this is no field\r\n\r\nx\n"
        : $do eq 'length' ? "Content-Length: 3\r\n$type\r\nabc"
        : $do eq 'badstatus' ? "Status: 999\r\n$type\r\nx\n"
        : $do eq 'nocontent' ? "Status: 204\r\n\r\n"
        : $do eq 'pid' ? "$type\r\n$$ $served"
        : $do eq 'env' ? "$type\r\n" . join('', map { "$_=$env{$_}\n" }
            grep { !/^(?:REMOTE_PORT|SERVER_SOFTWARE|SERVER_SIGNATURE|UNIQUE_ID)$/ } sort keys %env)
        : $do eq 'own' ? "$type\r\n" . join('', map { "$_=$ENV{$_}\n" } grep { !/^_/ } sort keys %ENV)
        : "$type\r\nhello\n";
    record($client, 6, substr($out, 0, 30000, '')) while length $out;
    exit 3 if $do eq 'cut';
    record($client, 6, '');
    record($client, 3, "\0" x 8);
    shutdown($client, 1);
    close $client;
}
