package policyfile

import (
	"time"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

var delayForm = form[policy.Delay]{
	what:    "a delay",
	example: "delay: {most: 2s}",
	main:    "most",
	also:    map[string]string{"max": "most", "longest": "most", "wait": "most", "timeout": "most", "length": "queue", "size": "queue"},
	fields: []field[policy.Delay]{
		in("most", "The longest that a request is held, up to 5m.", durationIn(timeSpan{time.Millisecond, policy.MaxDelay, "2s", ""}),
			func(to *policy.Delay, v time.Duration) { to.Most = v }),
		in("queue", "How many may wait for one key; 100 if left out.", whole(1, policy.MaxQueue),
			func(to *policy.Delay, v int64) { to.Queue = int(v) }),
	},
}

// delayField holds requests.
var delayField = field[policy.Rule]{
	key: "delay", about: "Holds a request that the rule would refuse until it fits, in order of arrival.",
	schema: schema{"$ref": "#/$defs/delay"},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		var to policy.Delay
		m, ok := delayForm.read(d, n, &to)
		switch {
		case !ok || m.spoilt():
		case m.values["most"] == nil:
			d.fail(m.node, "add most: 2s", "the longest wait is missing")
		default:
			r.Delay = to
		}
	},
}

var backupForm = form[policy.Backup]{
	what:    "a backup",
	example: "backup: {upstream: http://127.0.0.1:9001, match: {client.ip: 10.0.0.0/8}}",
	main:    "upstream",
	also:    map[string]string{"to": "upstream", "url": "upstream", "server": "upstream", "if": "match", "when": "match", "for": "match"},
	fields: []field[policy.Backup]{
		in("upstream", "Where the gateway sends those whom the rule refuses and prefers.", upstream,
			func(b *policy.Backup, v string) { b.Upstream = v }),
		in("match", "Which requests are preferred: all conditions must hold. Left out, every request.", match,
			func(b *policy.Backup, v policy.Match) { b.Match = v }),
	},
}

// backupField is a spare lane.
var backupField = field[policy.Rule]{
	key: "backup", about: "Another upstream, for those whom the rule refuses and prefers. Gateway only.",
	schema: schema{"$ref": "#/$defs/backup"},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		var b policy.Backup
		m, ok := backupForm.read(d, n, &b)
		switch {
		case !ok || m.spoilt():
		case m.values["upstream"] == nil:
			d.fail(m.node, "add upstream: http://127.0.0.1:9001, with the server's own host and port", "the upstream is missing")
		default:
			r.Backup = &b
		}
	},
}

// heldSchemas are the schemas of what stands in place of a refusal.
func heldSchemas(defs schema) {
	delay, backup := delayForm.asSchema(), backupForm.asSchema()
	delay["required"], backup["required"] = []string{"most"}, []string{"upstream"}
	defs["delay"], defs["backup"], defs["answer"] = delay, backup, answerSchema()
	faultSchemas(defs)
}
