package ec2sim

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
)

// maxTokens bounds the replies that are kept for repeated requests.
const maxTokens = 20_000

// tokenTable keeps the replies to requests with a ClientToken.
type tokenTable struct {
	replies map[string]keptReply
	order   []string
}

type keptReply struct {
	fingerprint [sha256.Size]byte
	body        []byte
}

func newTokenTable() tokenTable { return tokenTable{replies: map[string]keptReply{}} }

// look tells whether the request's token was used before, and the answer if so:
// the first reply for the same request, a refusal for any other.
func (t *tokenTable) look(r *request) (known bool, body []byte, bad *apiError) {
	token := r.form.str("ClientToken")
	if token == "" {
		return false, nil, nil
	}
	if len(token) > 128 {
		return true, nil, badRequest("InvalidParameterValue", "Value (%s) for parameter clientToken is invalid. The maximum length is 128.", clip(token))
	}
	kept, ok := t.replies[r.action+"|"+token]
	switch {
	case !ok:
		return false, nil, nil
	case kept.fingerprint != r.form.fingerprint:
		return true, nil, badRequest("IdempotentParameterMismatch",
			"The client token you have provided is associated with a resource with different parameters than those in this request.")
	default:
		return true, kept.body, nil
	}
}

func (t *tokenTable) keep(r *request, body []byte) {
	token := r.form.str("ClientToken")
	if token == "" {
		return
	}
	key := r.action + "|" + token
	t.replies[key] = keptReply{r.form.fingerprint, body}
	t.order = append(t.order, key)
	if len(t.order) > maxTokens {
		delete(t.replies, t.order[0])
		t.order = t.order[1:]
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
