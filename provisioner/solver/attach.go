package solver

import (
	"github.com/berth-dev/berth/provisioner/resources"
)

// attachRooms lets the algebra count volumes like any resource: every place gets an amount of each name
// that some pod asks for.
type attachRooms struct {
	unlimited resources.Vector
}

// manyVolumes is more than any node is asked to attach.
const manyVolumes = 1 << 30

func newAttachRooms(p Problem) attachRooms {
	var r attachRooms
	for _, amounts := range p.Attachments {
		for _, name := range amounts.Names() {
			r.unlimited = r.unlimited.With(name, manyVolumes)
		}
	}
	return r
}

// of returns the room of a place.
func (r attachRooms) of(known map[string]resources.Vector, place string) resources.Vector {
	if room, ok := known[place]; ok {
		return room
	}
	return r.unlimited
}

// strip takes volumes out of what is written on claims: no kubelet reports them as a resource.
func (r attachRooms) strip(requests resources.Vector) resources.Vector {
	for _, name := range r.unlimited.Names() {
		requests = requests.With(name, 0)
	}
	return requests
}
