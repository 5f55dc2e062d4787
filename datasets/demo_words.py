"""Word lists of the demo corpus: things that have two names, as `formal name|other name`.

No word of a formal name is, by its stem, in any other name: equal words would let a lexical ranker match
them.
"""

from __future__ import annotations

Pair = tuple[str, str]


def pairs(text: str) -> list[Pair]:
    """
    >>> pairs("image|picture, pose|posture")
    [('image', 'picture'), ('pose', 'posture')]
    """
    found = (part.split("|") for part in " ".join(text.split()).split(", "))
    return [(formal, other) for formal, other in found]


FIELDS: dict[str, tuple[list[Pair], list[Pair]]] = {
    # field: (objects that tasks are about, sources that data come from)
    "language": (
        pairs("""
            sentence|utterance, dialogue|conversation, syntax|grammar, sentiment|opinion,
            question|query, metaphor|figurative speech, morphology|word form, rumour|hearsay
        """),
        pairs("""
            newspaper|press, parliament|plenary debate, review|customer feedback,
            encyclopedia|reference book, subtitle|caption
        """),
    ),
    "vision": (
        pairs("""
            image|picture, gesture|hand movement, face|portrait, scene|surroundings, depth|distance,
            pose|posture, video|footage, texture|surface pattern
        """),
        pairs("""
            street|roadside, museum|gallery, sketch|drawing, webcam|desktop lens,
            dashcam|windscreen recorder
        """),
    ),
    "biology": (
        pairs("""
            protein|polypeptide, gene|hereditary unit, cell|cytological body, enzyme|biocatalyst,
            mutation|inherited alteration, membrane|lipid layer, neuron|nerve fibre, tissue|histology
        """),
        pairs("""
            mouse|rodent, yeast|fungus, biopsy|needle specimen, microscope|magnified slide,
            hospital|clinic
        """),
    ),
    "climate": (
        pairs("""
            rainfall|precipitation, drought|dry spell, storm|cyclone, glacier|ice mass,
            flood|inundation, wildfire|bush blaze, ocean current|marine flow, aerosol|suspended dust
        """),
        pairs("""
            satellite|orbital platform, buoy|floating station, radar|echo sounder,
            tree ring|wood growth layer, lake sediment|inland mud core
        """),
    ),
    "robotics": (
        pairs("""
            grasp|grip, trajectory|motion path, terrain|ground, obstacle|barrier, collision|crash,
            manipulator|mechanical arm, locomotion|walking, assembly|putting together
        """),
        pairs("""
            warehouse|storage hall, drone|unmanned aircraft, underwater|submerged,
            kitchen|cooking place, factory|production plant
        """),
    ),
    "chemistry": (
        pairs("""
            molecule|compound, catalyst|reaction accelerator, crystal|ordered solid,
            polymer|chained plastic, solvent|dissolving liquid, toxicity|harmfulness,
            battery|storage element, alloy|metal mixture
        """),
        pairs("""
            spectroscopy|absorption line, patent|invention claim, simulation|computer trial,
            diffraction|scattering, calorimetry|heat metering
        """),
    ),
    "networks": (
        pairs("""
            community|cohesive group, link|edge, influence|persuasion, traffic|vehicle load,
            routing|forwarding, epidemic|contagion, anomaly|outlier, bot|automated account
        """),
        pairs("""
            telephone|call detail, email|electronic mail, airline|flight, blog|web diary, road|highway
        """),
    ),
    "security": (
        pairs("""
            malware|hostile software, intrusion|break in, password|secret phrase, fraud|deception,
            phishing|bait message, vulnerability|weakness, firmware|embedded program, spam|junk
        """),
        pairs("""
            honeypot|decoy host, browser|web client, bank|lending house, smartphone|mobile handset,
            kernel|operating system core
        """),
    ),
    "education": (
        pairs("""
            essay|written assignment, student|learner, exam|final test, curriculum|course plan,
            plagiarism|copying, dropout|leaving early, tutor|teaching aide, skill|competence
        """),
        pairs("""
            classroom|lecture room, library|lending desk, forum|discussion board,
            university|higher school, quiz|short puzzle
        """),
    ),
    "astronomy": (
        pairs("""
            galaxy|stellar island, exoplanet|distant world, supernova|exploding star,
            asteroid|minor body, pulsar|spinning remnant, quasar|bright nucleus, comet|icy visitor,
            nebula|gas cloud
        """),
        pairs("""
            telescope|sky survey, spectrograph|dispersed light, interferometer|dish array,
            observatory|mountain dome, balloon|stratospheric flyer
        """),
    ),
}

ACTIONS = pairs("""
    prediction|forecasting, detection|spotting, classification|categorisation,
    segmentation|partitioning, retrieval|lookup, generation|synthesis, alignment|matching,
    ranking|ordering, tracking|following, reconstruction|recovery, annotation|tagging,
    compression|shrinking
""")

ADJECTIVES = pairs("""
    sparse|thinned out, recurrent|looping, hierarchical|multilevel, adversarial|opponent driven,
    probabilistic|chance based, contrastive|opposition trained, federated|spread over sites,
    attentive|focus weighted, convolutional|sliding window, causal|cause aware, symbolic|rule style,
    evolutionary|selection inspired, spectral|eigenvector, convex|bowl shaped, stochastic|coin tossing,
    modular|component wise, incremental|step by step, compositional|building block, latent|hidden,
    robust|disturbance tolerant, kernelised|similarity lifted, quantised|low precision,
    variational|bound maximising, distilled|teacher guided, equivariant|symmetry keeping,
    neural|connectionist, fuzzy|soft membership, episodic|memory replaying, paced|easy first,
    greedy|locally best, randomised|dice rolled, geometric|shape conscious, monotone|never decreasing,
    differentiable|smooth, autoregressive|left to right, bilinear|product form, asynchronous|unordered,
    calibrated|confidence corrected, multimodal|several channel, budgeted|cost limited
""")

HEADS = pairs("""
    encoder|embedder, regression|curve fitting, clustering|grouping, transformer|self reading stack,
    ensemble|committee, autoencoder|bottleneck copier, tree|branching splitter, automaton|state machine,
    process|random function, planner|lookahead search, estimator|approximator, sampler|drawing scheme,
    decoder|output writer, filter|sieve, classifier|sorter, optimiser|minimiser,
    factorisation|decomposition, diffusion|gradual denoising, policy|behaviour rule, hashing|bucketing
""")

COLLECTIONS = pairs("""
    corpus|collection, benchmark|yardstick, archive|repository
""")

PROPERTIES = pairs("""
    label scarcity|few marked examples, domain shift|changed conditions,
    class imbalance|skewed proportions, missing values|gaps in records,
    latency constraints|tight response time, privacy protection|confidentiality,
    interpretability|human readable reasons, energy efficiency|small power draw,
    catastrophic forgetting|loss of old knowledge, cold start|absence of history,
    measurement noise|sensor error, long sequences|extended input, fairness|equal treatment,
    uncertainty quantification|honest error bars, scalability|growth to huge size,
    sample efficiency|frugal use of trials, multilingual transfer|carrying over between tongues,
    concept drift|slow change over years, partial observability|limited view,
    zero shot generalisation|success on unseen kinds
""")

SYLLABLES = [
    *("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu"),
    *("bra", "cli", "dro", "fen", "gal", "hex", "jor", "kal", "lum", "mar", "nex"),
]
"""Names of systems are made of these."""
