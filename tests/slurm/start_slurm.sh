#!/usr/bin/env bash
# Start a one-node SLURM (munged, [mariadbd, slurmdbd,] slurmctld, slurmd) as root on loopback.
# Everything lives under $SLURM_TEST_DIR; nothing in /etc is touched. Idempotent.
#   eval "$(bash start_slurm.sh)"   # starts (or finds running) and exports SLURM_CONF
# Env: SLURM_TEST_DIR (default: slurm-test under TMPDIR)  SLURM_TEST_ACCT=dbd|none (default dbd)
#      SLURM_TEST_CPUS (default nproc)  SLURM_TEST_GPUS (default 4, fake)  SLURM_TEST_PORT (first of four)
#      SLURM_TEST_USER_SIGNAL=yes|no (default yes): whether a preempted job gets the signal it asked for
# Debian packages: slurm-wlm munge [slurmdbd slurm-wlm-mysql-plugin mariadb-server]
set -euo pipefail
D=${SLURM_TEST_DIR:-${TMPDIR:-/tmp}/slurm-test}; ACCT=${SLURM_TEST_ACCT:-dbd}
CPUS=${SLURM_TEST_CPUS:-$(nproc)}; GPUS=${SLURM_TEST_GPUS:-4}; PORT=${SLURM_TEST_PORT:-16817}
CTLD=$PORT; SLURMD=$((PORT + 1)); DBD=$((PORT + 2)); DBPORT=$((PORT + 3))
SIGNAL=; [ "${SLURM_TEST_USER_SIGNAL:-yes}" = yes ] && SIGNAL="SlurmctldParameters=preempt_send_user_signal"
HOST=$(hostname -s)
MEM=$(awk '/MemTotal/{print int($2/1024*0.9)}' /proc/meminfo)
log() { echo "[start_slurm] $*" >&2; }
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
wait_for() { # wait_for SECONDS WHAT CMD...
  local end=$((SECONDS + $1)) what=$2; shift 2
  while ((SECONDS < end)); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
  log "timed out waiting for $what"; return 1; }
mkdir -p "$D"/{log,run,state,spool,db,gpu}; chmod 755 "$D" "$D"/{log,run,state,spool}
export SLURM_CONF=$D/slurm.conf

# ---- config (rewritten only when nothing runs, so a running cluster keeps its own)
if ! alive "$D/run/slurmctld.pid"; then
  for ((i = 0; i < GPUS; i++)); do rm -f "$D/gpu/nvidia$i"; mknod "$D/gpu/nvidia$i" c 1 3; done
  if [ "$ACCT" = dbd ]; then
    ACCT_LINES="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$DBD
AccountingStoragePass=$D/run/munge.sock
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux"
  else
    ACCT_LINES="AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none"
  fi
  cat > "$D/slurm.conf" <<CONF
ClusterName=testbed
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/run/munge.sock
CredType=cred/munge
SlurmctldPort=$CTLD
SlurmdPort=$SLURMD
SlurmctldPidFile=$D/run/slurmctld.pid
SlurmdPidFile=$D/run/slurmd.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.log
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
$SIGNAL
JobRequeue=1
MaxArraySize=10001
MaxJobCount=20000
KillWait=5
InactiveLimit=0
MinJobAge=${SLURM_TEST_MIN_JOB_AGE:-300}
SlurmctldTimeout=120
SlurmdTimeout=120
MessageTimeout=30
GresTypes=gpu
$ACCT_LINES
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=$CPUS RealMemory=$MEM Gres=gpu:$GPUS State=UNKNOWN
PartitionName=debug Nodes=$HOST Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=$HOST Default=NO MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
  echo "NodeName=$HOST Name=gpu Flags=nvidia_gpu_env File=$D/gpu/nvidia[0-$((GPUS - 1))]" > "$D/gres.conf"
  echo "CgroupPlugin=cgroup/v1" > "$D/cgroup.conf"
  cat > "$D/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$D/run/munge.sock
DbdHost=localhost
DbdPort=$DBD
SlurmUser=root
PidFile=$D/run/slurmdbd.pid
LogFile=$D/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$DBPORT
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
CONF
  chmod 600 "$D/slurmdbd.conf"
fi

# ---- munge (own key, own socket)
if ! alive "$D/run/munged.pid"; then
  rm -f "$D"/run/munge.sock*
  [ -s "$D/munge.key" ] || { (umask 077; dd if=/dev/urandom of="$D/munge.key" bs=128 count=1 status=none); }
  munged --force --key-file="$D/munge.key" --socket="$D/run/munge.sock" --pid-file="$D/run/munged.pid" \
    --log-file="$D/log/munged.log" --seed-file="$D/run/munged.seed" --num-threads=2 2>>"$D/log/munged.err"
  wait_for 10 munged munge -n -S "$D/run/munge.sock"
fi

# ---- accounting: mariadbd + slurmdbd
if [ "$ACCT" = dbd ]; then
  if ! alive "$D/run/mariadb.pid"; then
    [ -d "$D/db/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$D/db" \
      --auth-root-authentication-method=normal --skip-test-db >"$D/log/mariadb-install.log" 2>&1
    setsid mariadbd --no-defaults --user=root --datadir="$D/db" --socket="$D/run/mysql.sock" --pid-file="$D/run/mariadb.pid" \
      --bind-address=127.0.0.1 --port="$DBPORT" --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 \
      --innodb-lock-wait-timeout=900 --skip-log-bin --performance-schema=OFF \
      </dev/null >>"$D/log/mariadb.log" 2>&1 &
    wait_for 30 mariadbd mariadb --no-defaults -uroot -S "$D/run/mysql.sock" -e 'select 1'
    mariadb --no-defaults -uroot -S "$D/run/mysql.sock" -e "create database if not exists slurm_acct;
      create user if not exists 'slurm'@'127.0.0.1' identified by 'slurm'; create user if not exists 'slurm'@'localhost' identified by 'slurm';
      grant all on slurm_acct.* to 'slurm'@'127.0.0.1'; grant all on slurm_acct.* to 'slurm'@'localhost';"
  fi
  if ! alive "$D/run/slurmdbd.pid"; then
    slurmdbd
    wait_for 30 slurmdbd timeout 5 sacctmgr -n list cluster
  fi
fi

# ---- slurmctld, slurmd
alive "$D/run/slurmctld.pid" || { slurmctld; wait_for 30 slurmctld timeout 5 scontrol ping; }
alive "$D/run/slurmd.pid" || slurmd
ready() { sinfo -h -o %t -p debug | grep -qE '^(idle|mix|alloc|comp)'; }
ready || scontrol update nodename="$HOST" state=resume 2>/dev/null || true
wait_for 30 "node to be idle" ready
log "up: $(sinfo -h -o '%P %t %c cpus %G' | tr '\n' ';')"
echo "export SLURM_CONF=$SLURM_CONF"
