package aws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
	"github.com/berth-dev/berth/provisioner/cloud"
)

func TestAilmentsOverTheWire(t *testing.T) {
	t.Parallel()
	w, p := ready(t, nil)
	got, err := p.Create(t.Context(), cloud.Group{ID: "g", Attempt: 1, Claims: w.claims("default", 5, capacity(onDemand), types("m5.large"))})
	require.NoError(t, err)
	var ids []string
	for _, id := range providerIDs(t, got) {
		ids = append(ids, id[strings.LastIndexByte(id, '/')+1:])
	}
	w.eventually("instances run", func() bool { return len(w.running()) == 5 })
	healthy, err := p.Ailments(t.Context())
	require.NoError(t, err)
	require.Empty(t, healthy)

	since := time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Second)
	require.True(t, w.FailChecks(ids[0], since, time.Time{}))
	require.True(t, w.FailChecks(ids[1], time.Time{}, since))
	require.True(t, w.Schedule(ids[2], ec2sim.StatusEvent{Code: "instance-retirement", Description: "The host will be retired"}))
	require.True(t, w.Schedule(ids[3], ec2sim.StatusEvent{Code: "instance-reboot", Description: "[Completed] The instance was rebooted"})) // IN-36
	w.eventually("EC2 tells", func() bool {
		list, err := p.Ailments(t.Context())
		return err == nil && len(list) == 3
	})
	list, err := p.Ailments(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []cloud.Ailment{
		{InstanceID: ids[0], Category: cloud.InstanceCheckFailed, Since: since},
		{InstanceID: ids[1], Category: cloud.SystemCheckFailed, Since: since},
		{InstanceID: ids[2], Category: cloud.MaintenanceScheduled},
	}, list)
	require.True(t, w.FailChecks(ids[0], time.Time{}, time.Time{}))
	list, err = p.Ailments(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)

	w.FailNext("DescribeInstanceStatus", "UnauthorizedOperation", 1)
	_, err = p.Ailments(t.Context())
	require.ErrorContains(t, err, "permission ec2:DescribeInstanceStatus")
}
